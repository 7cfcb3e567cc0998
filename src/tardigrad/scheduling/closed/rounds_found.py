"""The schedule of rounds at several shards, from when gradients come and when rounds end."""

from typing import NamedTuple

import numpy as np

from tardigrad.core.arrays import Flags, Floats, Ints
from tardigrad.scheduling.schedule import Schedule

GROUP, DROP, REPLY = range(3)


class StartedRows(NamedTuple):
    """Gradients, of the version that all shards were read at."""

    worker: Ints
    step: Ints
    version: Ints
    start_s: Floats
    end_s: Floats
    came_s: Floats
    """To each shard."""
    pulled_s: Floats
    """When each shard sent what it started with,"""
    last: Ints
    """and which of the shards, in the order in which they sent it, was the last to reach it."""


class Asked(NamedTuple):
    """For a version of a shard, and when the shard answered."""

    at_s: float
    shard: int
    at_least: int
    answered_s: float


class RoundsFound(NamedTuple):
    """`end_s` and `set_s`: of each version's round at each shard (see `End`)."""

    started: StartedRows
    end_s: Floats
    set_s: Floats
    asked: list[Asked]
    read: Ints | None = None
    """Of each row; None: its version of every shard."""
    scale: float = 1.0
    answered_by_all: bool = False
    """Whether the end of a round answers everybody, and nothing else does anybody."""


class _Decisions(NamedTuple):
    """In the order of the event loop: by time; at one instant timers are last, in the order in
    which they were set; what one push or worker does at several shards goes by shard."""

    kind: Ints
    shard: Ints
    about: Ints
    """A group's version, a drop's row, or how many replies."""
    time_s: Floats
    after: Ints
    """How many groups were applied before."""


def schedule_of(workers: int, shards: int, reason: str, found: RoundsFound) -> Schedule | None:
    """None: something falls on one instant, and the order is not known."""
    last_s = float(found.end_s[-1].max())
    order = _order(found.started, last_s)
    if order is None:
        return None
    rows = StartedRows._make(part[order] for part in found.started)
    read = np.repeat(rows.version[:, None], shards, axis=1)
    if found.read is not None:
        read = found.read[order]
    ends_s = found.end_s[rows.version]
    in_time = rows.came_s <= ends_s
    made = _decisions(workers, found, rows, in_time)
    groups, drops, replies = (made.kind == kind for kind in (GROUP, DROP, REPLY))
    place = np.empty(found.end_s.shape, dtype=np.int64)
    place[made.about[groups], made.shard[groups]] = np.arange(groups.sum())
    row, shard = np.nonzero(in_time)
    group = place[rows.version[row], shard]
    by_group = np.lexsort((rows.worker[row], group))
    sizes = np.bincount(group, minlength=place.size)
    end_s = np.where(rows.end_s > last_s, np.nan, rows.end_s)
    extra = made.about[replies]
    return Schedule(
        workers=workers,
        shards=shards,
        worker=rows.worker,
        step=rows.step,
        start_s=rows.start_s,
        end_s=end_s,
        stamp=rows.version,
        read=read,
        group_shard=made.shard[groups],
        group_time_s=made.time_s[groups],
        group_scale=np.full(place.size, found.scale),
        group_start=np.concatenate([[0], np.cumsum(sizes)]),
        group_rows=row[by_group],
        drop_row=made.about[drops],
        drop_shard=made.shard[drops],
        drop_time_s=made.time_s[drops],
        drop_reason=np.zeros(int(drops.sum()), dtype=np.int64),
        drop_after=made.after[drops],
        reply_shard=made.shard[replies],
        reply_extra=extra,
        reply_after=made.after[replies],
        reasons=(reason,) if drops.any() else (),
    )


def _order(started: StartedRows, last_s: float) -> Ints | None:
    """Of those that start before the end; None where it is not known."""
    order = np.lexsort((started.worker, started.last, started.start_s))
    order = order[started.start_s[order] < last_s]
    rows = StartedRows._make(part[order] for part in started)
    tied = np.nonzero(np.diff(rows.start_s) == 0)[0]
    # Of those that start together, all shards have sent to all at the same instants.
    if (rows.pulled_s[tied] != rows.pulled_s[tied + 1]).any() or (rows.end_s == last_s).any():
        return None
    row, _ = np.nonzero(rows.came_s <= last_s)
    came_s = rows.came_s[rows.came_s <= last_s]
    by_time = np.argsort(came_s, kind="stable")
    together = np.diff(came_s[by_time]) == 0
    return None if (together & (np.diff(row[by_time]) != 0)).any() else order


def decision_order(time_s: Floats, set_s: Floats, shard: Ints) -> Ints:
    """The order of decisions; `set_s` is that of the timer, or NaN."""
    by_timer = np.isfinite(set_s)
    return np.lexsort((shard, np.where(by_timer, set_s, 0.0), by_timer, time_s))


def shard_turns(end_s: Floats, set_s: Floats) -> Ints:
    """Of each shard, whether its round was the first of all to end, the next, and so on."""
    return np.argsort(decision_order(end_s, set_s, np.arange(len(end_s))))


def _decisions(workers: int, found: RoundsFound, rows: StartedRows, in_time: Flags) -> _Decisions:
    version, shard = (part.ravel() for part in np.indices(found.end_s.shape))
    group_s, set_s = found.end_s.ravel(), found.set_s.ravel()
    row, at = np.nonzero(~in_time & (rows.came_s <= found.end_s[-1].max()))
    came_s = rows.came_s[row, at]
    done = came_s > found.end_s[-1, at]  # it is answered, and that is all
    at_once = [one for one in found.asked if one.answered_s == one.at_s]
    more = np.zeros(found.end_s.shape, dtype=np.int64)  # replies than gradients in a group
    unanswered = np.zeros(0, dtype=np.int64)
    if found.answered_by_all:
        of = np.broadcast_to(rows.version[:, None], in_time.shape)[in_time]
        np.subtract.at(more, (of, np.nonzero(in_time)[1]), 1)
        more += workers
        unanswered = np.nonzero(~done)[0]
    for one in found.asked:
        if one.answered_s > one.at_s:
            more[one.at_least - 1, one.shard] += 1
    telling = np.nonzero(more.ravel())[0]
    count = [len(group_s), len(row), len(at_once), len(unanswered), len(telling)]
    kinds = np.repeat([GROUP, DROP, REPLY, REPLY, REPLY], count)
    kinds[len(group_s) :][: len(row)][done] = REPLY
    ones = np.ones(len(at_once) + len(unanswered), dtype=np.int64)
    ones[len(at_once) :] = -1
    about = np.concatenate([version, np.where(done, 1, row), ones, more.ravel()[telling]])
    asked = np.array([one.shard for one in at_once], dtype=np.int64)
    where = np.concatenate([shard, at, asked, at[unanswered], shard[telling]])
    asked_s = np.array([one.at_s for one in at_once])
    time_s = np.concatenate([group_s, came_s, asked_s, came_s[unanswered], group_s[telling]])
    timer_s = np.full(len(time_s), np.nan)
    timer_s[: len(group_s)], timer_s[len(time_s) - len(telling) :] = set_s, set_s[telling]
    # What a group's end answers more is told just before it, so that it has the groups before it.
    order = decision_order(time_s, timer_s, 2 * where + np.repeat([1, 1, 1, 1, 0], count))
    is_group = kinds[order] == GROUP
    order = order[: int(np.nonzero(is_group)[0].max()) + 1]  # then the loop ends
    is_group = is_group[: len(order)]
    return _Decisions(
        kinds[order], where[order], about[order], time_s[order], np.cumsum(is_group) - is_group
    )
