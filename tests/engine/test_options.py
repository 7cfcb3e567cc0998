"""What may be asked of a run: checked where it is written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg

MADE = tg.Schedule.from_order([0, 1] * 5, 2)
TASK = tg.FunctionTask(
    torch.ones(3),
    lambda view, worker, step: (view.sum(), view),
    evaluate=lambda p: {"sum": float(p[0])},
)
RULE = tg.rules.sgd(0.1)
HALF: Any = 2.5
FIVE: Any = 5
YES: Any = "yes"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.Evaluation(-1), "evaluation: every must be a whole number of at least 0"),
        (lambda: tg.Evaluation(True), "evaluation: every must be a whole number"),
        (lambda: tg.Evaluation(splits="test"), r'splits is a list of names, such as \["test"\]'),
        (lambda: tg.Evaluation(splits=["tset"]), "did you mean 'test'?"),
        (lambda: tg.Evaluation(measures="gap"), r'measures is a list of names, such as \["gap"\]'),
        (lambda: tg.Evaluation(measures=["b_stalenes"]), "did you mean 'b_staleness'?"),
        (lambda: tg.Checkpoints(every=HALF), "checkpoints: every must be a whole number"),
        (lambda: tg.Checkpoints(FIVE), "checkpoints: folder must be a path, got 5"),
        (lambda: tg.Checkpoints("run", 5, YES), "checkpoints: resume must be True or False"),
        (lambda: tg.Checkpoints(resume=True), "resume needs the folder of the run to go on with"),
        (lambda: tg.Limits(chunk=0), "chunk must be a whole number of at least 1, got 0"),
        (lambda: tg.Limits(chunk=-3), "chunk must be a whole number"),
        (lambda: tg.Limits(chunk=HALF), "chunk must be a whole number"),
        (lambda: tg.Limits(memory_gib=0), "memory_gib must be greater than 0"),
        (lambda: tg.Limits(memory_gib=-1.0), "memory_gib must be greater than 0"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    make: Callable[[], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_lists_of_names_are_kept_as_tuples() -> None:
    """So that two that say the same are equal, and can be keys."""
    one, other = tg.Evaluation(5, ["test"], ["gap"]), tg.Evaluation(5, ("test",), ("gap",))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize("link", [None, tg.BandwidthAware()])
def test_a_number_alone_is_how_often_to_evaluate(link: Any) -> None:
    rule = tg.rules.fasgd(0.1)
    cluster = tg.Gamma(workers=2)
    for asked in (3, tg.Evaluation(every=3)):
        run = tg.simulate(TASK, rule, cluster=cluster, updates=7, link=link, evaluation=asked)
        assert run.history.column("update") == [0, 3, 6, 7]


@pytest.mark.parametrize("link", [None, tg.BandwidthAware()])
def test_what_is_not_known_is_refused_by_name(link: Any) -> None:
    """Also where the schedule is made meanwhile."""
    parts: dict[str, Any] = {"cluster": tg.Gamma(workers=2), "updates": 3, "link": link}
    parts["evaluations"] = 3
    with pytest.raises(TypeError, match="'evaluations'"):
        tg.simulate(TASK, tg.rules.fasgd(0.1), **parts)


OLD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "evaluate_every": (
        {"evaluate_every": 2},
        {"evaluation": 2},
        r"evaluate_every of \w+: write evaluation=tg\.Evaluation\(every=…\)",
    ),
    "splits and measures": (
        {"evaluate_every": 2, "splits": ["train"], "measures": ["gap"]},
        {"evaluation": tg.Evaluation(2, ["train"], ["gap"])},
        r"evaluate_every, splits, measures of \w+: "
        r"write evaluation=tg\.Evaluation\(every=…, splits=…, measures=…\)",
    ),
    "limits": (
        {"chunk": 2, "memory_gib": 0.5},
        {"limits": tg.Limits(2, 0.5)},
        r"chunk, memory_gib of \w+: write limits=tg\.Limits\(chunk=…, memory_gib=…\)",
    ),
}


@pytest.mark.parametrize("case", OLD)
def test_old_names_do_the_same_with_a_warning(case: str) -> None:
    old, new, told = OLD[case]
    with pytest.warns(DeprecationWarning, match=told):
        run = tg.execute(MADE, TASK, RULE, **old)
    _same(run, tg.execute(MADE, TASK, RULE, **new))
    parts: dict[str, Any] = {"cluster": tg.Gamma(workers=2), "updates": 7}
    with pytest.warns(DeprecationWarning, match=told):
        run = tg.simulate(TASK, RULE, **parts, **old)
    _same(run, tg.simulate(TASK, RULE, **parts, **new))


def test_old_names_save_and_go_on_with_a_warning(tmp_path: Path) -> None:
    told = r"write checkpoints=tg\.Checkpoints\(folder=…, every=…\)"
    with pytest.warns(DeprecationWarning, match=told):
        tg.execute(MADE, TASK, RULE, folder=tmp_path, checkpoint_every=4)  # type: ignore[call-arg]
    ticks: list[Any] = []
    with pytest.warns(DeprecationWarning, match=r"tg\.Checkpoints\(folder=…, resume=…\)"):
        tg.execute(MADE, TASK, RULE, folder=tmp_path, resume=True, watch=ticks.append)  # type: ignore[call-arg]
    assert ticks == []  # it had been saved at its end


def _same(run: tg.Run, other: tg.Run) -> None:
    assert torch.equal(run.params, other.params)
    assert run.history.gap == other.history.gap
    columns = [{k: v for k, v in r.items() if k != "wall_s"} for r in run.history.records]
    assert columns == [{k: v for k, v in r.items() if k != "wall_s"} for r in other.history.records]
