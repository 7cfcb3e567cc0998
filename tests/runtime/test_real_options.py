"""What may be asked of a run on Ray: checked where it is written, under old names too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest

import tardigrad as tg
from tardigrad.recording.cuts import cut_numbers
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.record import read_record
from tardigrad.runtime import ActorPool, Change, fail_at, train
from tardigrad.runtime.faults import Fault, Fuse
from tardigrad.tasks import TASKS

TASK = TASKS["logistic_regression"](features=5, train_size=60)
RULE = tg.rules.sgd(lr=0.05)
NO: Any = "no"
ONE: Any = 1
FIVE: Any = 5
WORKER: Any = "worker"
DISPATCHER: Any = tg.Dispatcher(2)
FAULT: Any = fail_at(worker=0, step=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.Processes(threads=0), "threads must be a whole number of at least 1"),
        (lambda: tg.Processes(digest_every=-1), "digest_every must be a whole number"),
        (lambda: tg.Processes(shared_memory=NO), "shared_memory must be True or False"),
        (lambda: tg.Processes(sync_log=ONE), "sync_log must be True or False"),
        (lambda: tg.Processes(resources={WORKER: {}}), r'of \("worker", i\) or \("shard", i\)'),
        (lambda: tg.Processes(resources={("shrad", 0): {}}), "did you mean 'shard'?"),
        (lambda: tg.Scenario(impose=DISPATCHER), "only step times can be imposed"),
        (lambda: tg.Scenario(faults=FAULT), r"faults is a list, such as \["),
        (
            lambda: tg.Scenario(changes=[FIVE]),
            r"such as \[Change\(at_update=10\)",
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_what_only_a_simulation_can_measure_is_refused() -> None:
    with pytest.raises(ValueError, match=r"measures = \['gap'\] need every view at hand"):
        train(TASK, RULE, evaluation=tg.Evaluation(5, measures=["gap"]))


@pytest.mark.parametrize(
    ("kind", "moment", "left"), [("worker", "before_push", [6, 7]), ("shard", "before_log", [7])]
)
def test_who_takes_a_dead_ones_place_does_not_die_of_the_same_fault(
    kind: Literal["worker", "shard"], moment: str, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker goes on with the step at which it died, a shard from the version before."""
    killed: list[int] = []
    monkeypatch.setattr("os.kill", lambda process, signal: killed.append(process))
    fuse = Fuse(tuple(Fault(kind, 0, at, moment) for at in range(4, 8)), kind, 0, began=5)
    died = []
    for at in range(4, 8):
        before = len(killed)
        fuse.burn(moment, at)
        died += [at] * (len(killed) - before)
    assert died == left


def test_lists_are_kept_as_tuples() -> None:
    change = Change(5)
    assert tg.Scenario(changes=[change]) == tg.Scenario(changes=(change,))


def test_old_names_do_the_same_with_a_warning(pool: ActorPool, tmp_path: Path) -> None:
    times = tg.Constant(workers=2, step_s=0.05)  # it saves between two looks at its shards
    old: dict[str, Any] = {
        "evaluate_every": 10, "splits": ["train"], "folder": tmp_path, "cut_every": 5,
        "crew": pool, "digest_every": 8, "impose": times,
    }  # fmt: skip
    with pytest.warns(DeprecationWarning, match="of train: write") as warned:
        run = train(TASK, RULE, updates=40, **old)
    assert [str(one.message).partition(": ")[2] for one in warned] == [
        "write evaluation=tg.Evaluation(every=…, splits=…)",
        "write checkpoints=tg.Checkpoints(folder=…, every=…)",
        "write processes=tg.Processes(pool=…, digest_every=…)",
        "write scenario=tg.Scenario(impose=…)",
    ]
    assert [r["update"] for r in run.history.records if "train_loss" in r] == [0, 10, 20, 30, 40]
    assert cut_numbers(FolderDisk(tmp_path))
    assert {version for _, version, _ in read_record(tmp_path)["digests"]} == {8, 16, 24, 32, 40}
    assert run.schedule.end_time > 0.95  # twenty gradients of each worker, as slow as was imposed
