"""What ends a run before its updates are made; interrupted, extended and changed runs."""

import os
import signal
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

import tardigrad as tg
from tardigrad.engine.checkpoint import load_facts
from tardigrad.policies import Policy
from tardigrad.scheduling.validate import validate
from tardigrad.tasks import logistic_regression, quadratic

TASK, RULE, CLUSTER = quadratic(dimension=6, noise=0.1), tg.rules.sgd(0.05), tg.Gamma(workers=3)

ENGINES: tuple[Literal["exact", "fast"], ...] = ("exact", "fast")


def simulate(updates: int = 200, **options: Any) -> tg.Run:
    parts: dict[str, Any] = {"cluster": CLUSTER, "engine": "exact", **options}
    return tg.simulate(TASK, RULE, updates=updates, **parts)


def without_wall(run: tg.Run) -> list[dict[str, float]]:
    return [{k: v for k, v in record.items() if k != "wall_s"} for record in run.history.records]


def test_the_loss_ends_a_run_where_it_comes_down_to_the_target() -> None:
    whole = simulate(evaluation=10)
    target = 0.5 * whole.history.records[0]["validation_loss"]
    first = next(r for r in whole.history.records if r["validation_loss"] <= target)
    run = simulate(evaluation=10, stop=tg.Stop(loss=target))
    assert run.ended is not None
    assert (run.ended.by, run.ended.updates) == ("loss", first["update"])
    assert f"the target is {target:g}" in run.ended.why
    updates = int(first["update"])
    assert without_wall(run) == without_wall(whole)[: 1 + updates // 10]
    assert run.history.loss == whole.history.loss[:updates]
    assert run.schedule == tg.schedule(cluster=CLUSTER, updates=updates)
    assert torch.equal(run.params, simulate(updates).params)


def test_accuracy_ends_a_run() -> None:
    task = logistic_regression(train_size=200, validation=100)
    run = tg.simulate(
        task,
        tg.rules.sgd(0.1),
        cluster=CLUSTER,
        updates=2000,
        evaluation=20,
        stop=tg.Stop(accuracy=0.7),
    )
    shares = run.history.column("validation_accuracy")
    assert shares[-1] >= 0.7 > max(shares[:-1])
    assert run.ended is not None
    assert run.ended.by == "accuracy"


def test_patience_ends_a_run_that_does_not_improve() -> None:
    whole = simulate(evaluation=1, stop=None).history.column("validation_loss")
    for patience in (1, 3):
        run = simulate(evaluation=1, stop=tg.Stop(patience=patience))
        losses = run.history.column("validation_loss")
        best = losses.index(min(losses))
        assert len(losses) - 1 - best == patience
        assert losses == whole[: len(losses)]
        for end in range(1, len(losses)):  # and not before
            assert end - 1 - losses.index(min(losses[:end])) < patience
        assert run.ended is not None
        assert run.ended.by == "patience"


@pytest.mark.parametrize("shards", [1, 2])
def test_virtual_time_ends_a_run_with_the_first_update_at_or_after_it(shards: int) -> None:
    times = tg.schedule(cluster=CLUSTER, updates=200, shards=shards).group_time_s
    for virtual_s in (times[50], times[50] + 1e-6):
        run = simulate(shards=shards, stop=tg.Stop(virtual_s=float(virtual_s)), evaluation=60)
        assert run.schedule.end_time >= virtual_s > run.schedule.group_time_s[-1 - shards]
        assert run.history.records[-1]["update"] == run.schedule.updates
        assert run.ended is not None
        assert run.ended.by == "virtual_s"
        validate(run.schedule)


def test_virtual_time_ends_batches_of_the_fast_engine_at_the_same_update() -> None:
    task = logistic_regression(train_size=200, validation=100)
    ended = [
        tg.simulate(
            task,
            RULE,
            cluster=tg.Gamma(workers=8),
            updates=400,
            engine=engine,
            stop=tg.Stop(virtual_s=2000.0),
        ).ended
        for engine in ENGINES
    ]
    assert ended[0] is not None
    assert ended[0] == ended[1]
    assert 1 < ended[0].updates < 400


def test_virtual_time_ends_a_run_whose_link_decides_by_tensors() -> None:
    run = tg.simulate(
        TASK,
        tg.rules.fasgd(0.005),
        cluster=CLUSTER,
        updates=200,
        link=tg.BandwidthAware(),
        stop=tg.Stop(virtual_s=2000.0),
    )
    times = run.schedule.group_time_s
    assert times[-1] >= 2000.0 > times[-2]


def test_wall_time_ends_a_run_and_counts_what_came_before_a_resume(tmp_path: Path) -> None:
    stop = tg.Stop(wall_s=1e-9)
    run = simulate(stop=stop, checkpoints=tg.Checkpoints(tmp_path))
    assert run.ended == tg.Ended("wall_s", "it has taken 1e-09 s", 0)
    part = simulate(
        stop=tg.Stop(wall_s=0.02), checkpoints=tg.Checkpoints(tmp_path, resume=True), evaluation=7
    )
    assert part.ended is not None
    assert 0 < part.ended.updates < 200
    again = simulate(
        stop=tg.Stop(wall_s=0.02), checkpoints=tg.Checkpoints(tmp_path, resume=True), evaluation=7
    )
    assert again.ended == part.ended
    end = simulate(checkpoints=tg.Checkpoints(tmp_path, resume=True), evaluation=7)
    whole = simulate(evaluation=7)
    assert without_wall(end) == without_wall(whole)
    assert torch.equal(end.params, whole.params)


@pytest.mark.parametrize(
    ("stop", "evaluation", "message"),
    [
        ({"loss": 0.1}, 0, "loss would never be measured, because the run evaluates nothing"),
        ({"accuracy": 0.9}, 10, "validation_loss, and no validation_accuracy"),
        ({"patience": 21}, 10, "patience = 21 can never happen: in 200 updates there are 21"),
        ({"patience": 0}, 10, "patience must be a whole number of at least 1"),
        ({"accuracy": 95}, 10, "so 95 would never do: write 0.95 for 95 %"),
        ({"loss": float("nan")}, 10, "stop: loss must be a finite number"),
        ({"wall_s": 0}, 10, "stop: wall_s must be greater than 0"),
        ({}, 10, "stop says nothing: give it some of loss, accuracy"),
    ],
)
def test_what_is_never_measured_or_can_never_happen_is_refused(
    stop: dict[str, Any], evaluation: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(evaluation=evaluation, stop=tg.Stop(**stop))


def test_a_task_that_gives_no_loss_has_none_to_stop_at() -> None:
    """Its batch loss is recorded as 0, which is below any target."""
    alone = tg.FunctionTask(torch.ones(3), lambda view, worker, step: view)
    told = tg.FunctionTask(torch.ones(3), lambda view, worker, step: (view.sum() / 3, view))
    options: dict[str, Any] = {"cluster": CLUSTER, "updates": 200, "evaluation": 10}
    for stop in (tg.Stop(loss=0.5), tg.Stop(patience=2)):
        with pytest.raises(ValueError, match=r"never be measured: grad .*return \(loss, gradient"):
            tg.simulate(alone, tg.rules.sgd(lr=0.01), stop=stop, **options)
    ended = tg.simulate(told, tg.rules.sgd(lr=0.01), stop=tg.Stop(loss=0.5), **options).ended
    assert ended is not None
    assert ended.by == "loss"
    assert 0 < ended.updates < 200


def test_virtual_time_is_refused_where_there_is_none() -> None:
    with pytest.raises(ValueError, match=r"this one counts events, without seconds"):
        simulate(cluster=tg.Dispatcher(workers=3), stop=tg.Stop(virtual_s=5.0))


@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_ctrl_c_makes_a_checkpoint_first(tmp_path: Path, engine: str) -> None:
    task = logistic_regression(train_size=200, validation=100)

    def interrupt(tick: tg.Tick) -> None:
        if tick.updates >= 57 and not pressed:
            pressed.append(tick.updates)
            os.kill(os.getpid(), signal.SIGINT)

    pressed: list[int] = []
    parts: dict[str, Any] = {"cluster": CLUSTER, "updates": 200, "evaluation": 20, "engine": engine}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        tg.simulate(
            task, RULE, checkpoints=tg.Checkpoints(tmp_path, every=100), watch=interrupt, **parts
        )
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    facts = load_facts(tmp_path / "checkpoint.safetensors")
    assert facts["shards"][0]["version"] == pressed[0]
    going_on = tg.Checkpoints(tmp_path, every=100, resume=True)
    run = tg.simulate(task, RULE, checkpoints=going_on, **parts)
    calm = tg.simulate(task, RULE, **parts)
    assert torch.equal(run.params, calm.params)
    assert without_wall(run) == without_wall(calm)


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path) -> None:
    def interrupt(tick: tg.Tick) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("it went on")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        simulate(checkpoints=tg.Checkpoints(tmp_path), watch=interrupt)
    assert not (tmp_path / "checkpoint.safetensors").exists()


POLICIES = [
    tg.Async(),
    tg.Sync(),
    tg.Backup(1),
    tg.SoftSync(2, wait=False),
    tg.StaleSynchronous(2),
    tg.Deadline(2.0),
]


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: type(policy).__name__)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_finished_run_is_extended_as_if_it_had_been_longer(
    tmp_path: Path, policy: Policy, shards: int
) -> None:
    """Also where times tie, over a network, and with workers that were away at the end."""
    absent = (tg.Absence(1, 20.0, 60.0),)
    clusters = (
        tg.Gamma(workers=3, absences=absent),
        tg.Constant(workers=3),
        tg.Gamma(workers=3, network=tg.Network(latency_s=0.3)),
    )
    for number, cluster in enumerate(clusters):
        parts: dict[str, Any] = {
            "policy": policy,
            "cluster": cluster,
            "shards": shards,
            "evaluation": 10,
        }
        folder = tmp_path / str(number)
        said: list[str] = []
        simulate(35, checkpoints=tg.Checkpoints(folder), **parts)
        going_on = tg.Checkpoints(folder, resume=True)
        ticks: list[tg.Tick] = []
        longer = simulate(70, checkpoints=going_on, say=said.append, watch=ticks.append, **parts)
        whole = simulate(70, **parts)
        assert ticks[0].updates == 36
        assert torch.equal(longer.params, whole.params)
        assert longer.schedule == whole.schedule
        assert without_wall(longer) == without_wall(whole)


def test_where_views_were_not_kept_a_longer_run_is_executed_from_the_start(tmp_path: Path) -> None:
    task = logistic_regression(train_size=200, validation=100)
    parts: dict[str, Any] = {"cluster": tg.Gamma(workers=8), "engine": "fast", "evaluation": 20}
    tg.simulate(task, RULE, updates=100, checkpoints=tg.Checkpoints(tmp_path), **parts)
    said: list[str] = []
    going_on = tg.Checkpoints(tmp_path, resume=True)
    longer = tg.simulate(task, RULE, updates=200, checkpoints=going_on, say=said.append, **parts)
    whole = tg.simulate(task, RULE, updates=200, **parts)
    assert any("it is executed again from the start" in line for line in said)
    assert torch.equal(longer.params, whole.params)


def test_another_schedule_is_no_extension(tmp_path: Path) -> None:
    simulate(35, checkpoints=tg.Checkpoints(tmp_path))
    going_on = tg.Checkpoints(tmp_path, resume=True)
    with pytest.raises(ValueError, match="belongs to a run of another schedule"):
        simulate(70, checkpoints=going_on, seed=1)
    with pytest.raises(ValueError, match="belongs to a run of another schedule"):
        simulate(20, checkpoints=going_on)


def test_a_changed_rate_is_told_at_a_resume(tmp_path: Path) -> None:
    simulate(35, checkpoints=tg.Checkpoints(tmp_path))
    said: list[str] = []
    parts: dict[str, Any] = {
        "cluster": CLUSTER,
        "updates": 70,
        "engine": "exact",
        "say": said.append,
    }
    going_on = tg.Checkpoints(tmp_path, resume=True)
    tg.simulate(TASK, tg.rules.sgd(0.01), checkpoints=going_on, **parts)
    (line,) = (line for line in said if line.startswith("the rule was"))
    assert "lr=0.05" in line.split(" and is ")[0]
    assert "lr=0.01" in line.split(" and is ")[1]
