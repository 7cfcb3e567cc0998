"""Rounds that end with the first gradients of a version: `Backup`, `Deadline`, and `Partial` at its
simplest. A loop over rounds, each of them a sort of all workers.

At the end T of a round everybody whose gradient was among the first starts the next round's, in
worker order: they are *fresh*. The others are *late*, each busy until its own end e(w) with a
gradient of an older version. If that comes before the round is over it is dropped, and its worker
starts this round's at e(w). So worker w's gradient of this version comes at

    a(w) = T + took(w) if it is fresh, else e(w) + took(w),

and the policy tells from these, sorted, how many it waits for and when the round ends, C: with the
quota-th of them, or at a time. It looks at none after C. (A late one with e(w) > C has not started
one, and its a(w) > C does not count.) One that is late is dropped in this round iff e(w) ≤ C.

The event loop takes events by (time, order of their starts), which is (time, row). Rows of a round
are the fresh ones, then the late ones in order of their (e(w), row). Held in this order, a stable
sort by time is the event loop's. An older gradient has a smaller row than the one that ends the
round, so at e(w) = C it comes first, and timers come after all arrivals of their instant: hence ≤.
All of this also holds where a step takes no time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tardigrad.clusters import StepTimes
from tardigrad.core.arrays import Floats, Ints

LEAST, SHARE = 16, 16
"""A round costs a sort of all workers, which pays for at least so many gradients, and for one in so
many workers. Fewer are quicker in the event loop."""
CHUNK = 16
TRIED = 8
"""After so many rounds their size is known, where the policy does not say it."""

RoundEnd = Callable[[Floats, float], tuple[int, float]]
"""Of when gradients come, sorted, and when the round began: how many are in it, and its end."""


@dataclass(frozen=True)
class Rounds:
    """Arguments of `OneShard`, but for what dropping and replying mean to the policy."""

    workers: int
    worker: Ints
    step: Ints
    start_s: Floats
    end_s: Floats
    version: Ints
    group_rows: Ints
    group_size: Ints
    group_time_s: Floats
    drop_row: Ints
    drop_time_s: Floats
    drop_after: Ints


def worth_rounds(workers: int, quota: int) -> bool:
    """Whether `rounds` is quicker than the event loop."""
    return quota >= LEAST and quota * SHARE >= workers


def first(quota: int) -> RoundEnd:
    """With the quota-th gradient."""
    return lambda comes_s, began_s: (quota, float(comes_s[quota - 1]))


def rounds(times: StepTimes, workers: int, ends_with: RoundEnd, updates: int) -> Rounds | None:
    """None: rounds turned out so small that the event loop is quicker."""
    steps = StepsAhead(times, workers)
    groups: list[Ints] = []
    worker, step, start_s = [], [], []
    drop_row, drop_time_s, ends = [], [], []
    base, now_s = 0, 0.0
    fresh = np.arange(workers)
    late, late_row, late_s = fresh[:0], fresh[:0], np.empty(0)  # in order of (end, row)
    counts, drops, times_s = [], [], []
    for made in range(updates):
        if made == TRIED and not worth_rounds(workers, sum(len(group) for group in groups) // made):
            return None
        who = np.concatenate([fresh, late])
        begun_s = np.concatenate([np.full(len(fresh), now_s), late_s])
        comes_s = begun_s + steps.next_s(who)
        order = np.argsort(comes_s, kind="stable")
        size, now_s = ends_with(comes_s[order], now_s)
        in_time, others = order[:size], order[size:]
        dropped = int(np.searchsorted(late_s, now_s, side="right"))
        begun = len(fresh) + dropped
        worker.append(who[:begun])
        step.append(steps.made[who[:begun]])
        start_s.append(begun_s[:begun])
        steps.made[who[:begun]] += 1
        drop_row.append(late_row[:dropped])
        drop_time_s.append(late_s[:dropped])
        group = in_time[np.argsort(who[in_time])]
        groups.append(base + group)
        ends.append(comes_s[group])
        counts.append(begun)
        times_s.append(now_s)
        drops.append(dropped)
        # Late from now on: this round's that came after its end, and those that are late still.
        others = others[others < begun]
        busy_s = np.concatenate([late_s[dropped:], comes_s[others]])
        busy = np.concatenate([late[dropped:], who[others]])
        busy_row = np.concatenate([late_row[dropped:], base + others])
        by_end = np.argsort(busy_s, kind="stable")
        late, late_row, late_s = busy[by_end], busy_row[by_end], busy_s[by_end]
        fresh = who[group]
        base += begun
    group_rows, sizes = np.concatenate(groups), [len(group) for group in groups]
    dropped_rows, dropped_s = np.concatenate(drop_row), np.concatenate(drop_time_s)
    end_s = np.full(base + len(fresh), np.nan)
    end_s[group_rows] = np.concatenate(ends)
    end_s[dropped_rows] = dropped_s
    return Rounds(
        workers=workers,
        worker=np.concatenate([*worker, fresh]),
        step=np.concatenate([*step, steps.made[fresh]]),
        start_s=np.concatenate([*start_s, np.full(len(fresh), now_s)]),
        end_s=end_s,
        version=np.repeat(np.arange(updates + 1), [*counts, len(fresh)]),
        group_rows=group_rows,
        group_size=np.array(sizes),
        group_time_s=np.array(times_s),
        drop_row=dropped_rows,
        drop_time_s=dropped_s,
        drop_after=np.repeat(np.arange(updates), drops),
    )


class StepsAhead:
    """How long everybody's next step takes, drawn some steps ahead."""

    def __init__(self, times: StepTimes, workers: int) -> None:
        self.times = times
        self.everyone = np.arange(workers)
        self.made = np.zeros(workers, dtype=np.int64)
        """Steps that each has begun."""
        self._draw()

    def next_s(self, workers: Ints) -> Floats:
        ahead = self.made - self._from
        if ahead.max() == CHUNK:
            self._draw()
            ahead = self.made - self._from
        return np.asarray(self._drawn[workers, ahead[workers]])

    def _draw(self) -> None:
        """A function of worker and step, so that drawing one again changes nothing."""
        self._from = self.made.copy()
        steps = self._from[:, None] + np.arange(CHUNK)[None, :]
        self._drawn = self.times.step_s(self.everyone[:, None], steps)
