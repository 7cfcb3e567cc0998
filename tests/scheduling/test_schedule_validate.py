"""Every contradiction a schedule can hold is found before it is executed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Absence
from tardigrad.scheduling import Schedule, validate


def good() -> Schedule:
    """Two shards, three workers, one of whom leaves and returns; one drop put in by hand."""
    cluster = tg.Gamma(workers=3, absences=(Absence(1, 300.0, 900.0),))
    made = tg.schedule(cluster=cluster, updates=30, shards=2)
    unused = np.setdiff1d(np.arange(made.rows), made.group_rows)[:1]
    return replace(
        made,
        drop_row=unused,
        drop_shard=np.array([1]),
        drop_time_s=np.array([5.0]),
        drop_reason=np.array([0]),
        drop_after=np.array([3]),
        reasons=("late",),
    )


def changed(name: str, at: Any, value: float) -> Any:
    def change(s: Schedule) -> Schedule:
        array = getattr(s, name).copy()
        array[at] = value
        return replace(s, **{name: array})

    return change


def shortened(name: str) -> Any:
    return lambda s: replace(s, **{name: getattr(s, name)[:-1]})


def as_floats(name: str) -> Any:
    return lambda s: replace(s, **{name: getattr(s, name).astype(np.float64)})


def dropped_and_applied(s: Schedule) -> Schedule:
    return replace(s, drop_row=s.group_rows[1:2], drop_shard=s.group_shard[1:2])


def read_ahead(s: Schedule) -> Schedule:
    """Shard 0 applies a row first of all, when shard 1 is still at version 0."""
    return changed("read", (s.group_rows[0], 1), 1)(s)


MUTATIONS = {
    "no workers": (lambda s: replace(s, workers=0), "no workers or no shards"),
    "no shards": (lambda s: replace(s, shards=0), "no workers or no shards"),
    "short step": (shortened("step"), "step has the wrong length"),
    "short end_s": (shortened("end_s"), "end_s has the wrong length"),
    "short read": (shortened("read"), "read has the wrong length"),
    "short group_scale": (shortened("group_scale"), "group_scale has the wrong length"),
    "short group_start": (shortened("group_start"), "group_start has the wrong length"),
    "short group_rows": (shortened("group_rows"), "group_start does not cover group_rows"),
    "short drop_after": (shortened("drop_after"), "drop_after has the wrong length"),
    "short member_after": (shortened("member_after"), "member_after has the wrong length"),
    "one shard too many": (lambda s: replace(s, shards=3), "read has the wrong shape"),
    "flat read": (lambda s: replace(s, read=s.read[:, 0]), "read has the wrong shape"),
    "worker as floats": (as_floats("worker"), "worker holds float64, not int64"),
    "rows as floats": (as_floats("group_rows"), "group_rows holds float64, not int64"),
    "square worker": (
        lambda s: replace(s, worker=np.tile(s.worker[:, None], 2)),
        "worker has the wrong shape",
    ),
    "unknown worker": (changed("worker", 4, 3), "worker names one that does not exist"),
    "negative worker": (changed("worker", 4, -1), "worker names one that does not exist"),
    "unknown shard": (changed("group_shard", 4, 2), "group_shard does not exist"),
    "empty group": (lambda s: changed("group_start", 3, s.group_start[2])(s), "a group is empty"),
    "late first group": (changed("group_start", 0, 1), "(group is empty|does not cover)"),
    "unknown row": (changed("group_rows", 7, 10**6), "group_rows names a row that is not there"),
    "unknown dropped row": (changed("drop_row", 0, -1), "drop_row names a row that is not there"),
    "unknown drop shard": (changed("drop_shard", 0, 2), "drop_shard does not exist"),
    "unknown reason": (changed("drop_reason", 0, 1), "drop_reason is unknown"),
    "drop after the end": (changed("drop_after", 0, 10**6), "drop_after counts too many"),
    "dropped and applied": (dropped_and_applied, "dropped where it was also applied"),
    "scale 0": (changed("group_scale", 2, 0.0), "group_scale must be positive"),
    "scale NaN": (changed("group_scale", 2, np.nan), "group_scale must be positive"),
    "time backwards": (changed("group_time_s", 5, 0.0), "group_time_s runs backwards"),
    "time NaN": (changed("group_time_s", 5, np.nan), "group_time_s runs backwards"),
    "start NaN": (changed("start_s", 5, np.nan), "start_s is not a time"),
    "ends before it starts": (changed("end_s", 0, -1.0), "ends before it starts"),
    "negative read": (changed("read", (3, 1), -1), "read is negative"),
    "negative stamp": (changed("stamp", 3, -1), "a step or a stamp is negative"),
    "step skipped": (changed("step", 3, 7), "steps do not count up by one"),
    "version from the future": (changed("read", (0, 0), 9), "shard 0 from the future"),
    "other shard's future": (read_ahead, "shard 1 from the future"),
    "unknown member": (changed("member_worker", 0, 3), "member_worker names one"),
    "half joined": (changed("member_joined", 0, 2), "neither 0 nor 1"),
    "member after the end": (changed("member_after", -1, 10**6), "member_after does not count up"),
}


def test_the_schedule_that_is_broken_below_is_good() -> None:
    validate(good())
    assert len(good().member_after) == 2


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_contradiction_is_found(name: str) -> None:
    mutate, message = MUTATIONS[name]
    broken = mutate(good())
    with pytest.raises(ValueError, match=rf"^here is not a valid schedule: .*{message}"):
        validate(broken, "here")


def test_nothing_is_executed_on_a_broken_schedule() -> None:
    asked = []

    def grad(view: Any, worker: int, step: int) -> Any:
        asked.append(worker)
        return view

    broken = changed("group_rows", 7, 10**6)(good())
    task = tg.FunctionTask(tg.tasks.quadratic(4).start(), grad)
    with pytest.raises(ValueError, match="not a valid schedule"):
        tg.execute(broken, task, tg.rules.sgd(0.1))
    assert not asked
