"""Observers: who is called when, by every engine, after a resume, and however a run ends."""

import math
from pathlib import Path
from typing import Any

import pytest

import tardigrad as tg
from tardigrad.tasks import logistic_regression, quadratic

TASK, RULE, CLUSTER = quadratic(dimension=6, noise=0.1), tg.rules.sgd(0.05), tg.Gamma(workers=3)


class Seen(tg.Observer):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.starts: list[tg.Started] = []
        self.ticks: list[tg.Tick] = []
        self.records: list[dict[str, float]] = []
        self.lines: list[str] = []
        self.ends: list[tg.Ended] = []

    def started(self, start: tg.Started) -> None:
        self.starts.append(start)

    def updated(self, tick: tg.Tick) -> None:
        self.ticks.append(tick)

    def evaluated(self, record: object) -> None:
        self.records.append(dict(record))  # type: ignore[call-overload]

    def happened(self, what: str) -> None:
        self.lines.append(what)

    def ended(self, end: tg.Ended) -> None:
        self.ends.append(end)


class Killed(Exception):
    pass


class KillAt(tg.Observer):
    def __init__(self, update: int) -> None:
        self.update = update

    def updated(self, tick: tg.Tick) -> None:
        if tick.updates >= self.update:
            raise Killed


def test_a_run_is_told_from_its_start_to_its_end(tmp_path: Path) -> None:
    seen = Seen()
    saving = tg.Checkpoints(tmp_path, every=10)
    run = tg.simulate(
        TASK,
        RULE,
        cluster=CLUSTER,
        updates=25,
        evaluation=10,
        checkpoints=saving,
        observers=[seen],
    )
    (start,) = seen.starts
    assert (start.total, start.updates, list(start.records)) == (25, 0, [])
    assert start.schedule == run.schedule
    assert start.about["rule"] == repr(RULE)
    assert [tick.updates for tick in seen.ticks] == list(range(1, 26))
    assert [tick.loss for tick in seen.ticks] == run.history.loss
    assert seen.records == run.history.records
    assert [record["update"] for record in seen.records] == [0, 10, 20, 25]
    assert seen.lines == [f"saved after update {update}" for update in (10, 20, 25)]
    assert seen.ends == [run.ended]
    assert run.ended == tg.Ended("updates", "all 25 updates were made", 25)


def test_the_fast_engine_tells_once_per_batch(tmp_path: Path) -> None:
    task = logistic_regression(train_size=50, validation=10)
    seen = Seen()
    parts: dict[str, Any] = {"cluster": tg.Gamma(workers=8), "updates": 64, "engine": "fast"}
    tg.simulate(task, RULE, observers=[seen], **parts)
    ticks = [tick.updates for tick in seen.ticks]
    assert ticks == sorted(set(ticks))
    assert ticks[-1] == 64
    assert len(ticks) < 32


def test_a_resumed_run_tells_nothing_twice(tmp_path: Path) -> None:
    parts: dict[str, Any] = {"cluster": CLUSTER, "updates": 60, "evaluation": 10}
    whole, first, second = Seen(), Seen(), Seen()
    tg.simulate(TASK, RULE, observers=[whole], **parts)
    saving = tg.Checkpoints(tmp_path, every=15)
    with pytest.raises(Killed):
        tg.simulate(TASK, RULE, checkpoints=saving, observers=[first, KillAt(40)], **parts)
    assert first.ends == [tg.Ended("error", "Killed: ", 40)]
    going_on = tg.Checkpoints(tmp_path, every=15, resume=True)
    tg.simulate(TASK, RULE, checkpoints=going_on, observers=[second], **parts)
    (start,) = second.starts
    assert start.updates == 30
    told = [int(record["update"]) for record in (*start.records, *second.records)]
    assert told == [int(record["update"]) for record in whole.records]
    assert second.ticks == whole.ticks[30:]


def test_a_run_that_diverges_is_told_as_ended() -> None:
    seen = Seen()
    with pytest.raises(tg.Diverged) as diverged:
        tg.simulate(TASK, tg.rules.sgd(1e6), cluster=CLUSTER, updates=500, observers=[seen])
    assert seen.ends == [tg.Ended("diverged", str(diverged.value), diverged.value.update)]
    assert math.isfinite(seen.ticks[-1].loss)


def test_what_is_no_observer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"subclass tg\.Observer"):
        tg.simulate(TASK, RULE, cluster=CLUSTER, updates=5, observers=[print])  # type: ignore[list-item]
