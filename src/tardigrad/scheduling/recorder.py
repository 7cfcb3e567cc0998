"""Collects what the drivers decide, row by row and group by group, and makes the Schedule of it."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from tardigrad.scheduling.schedule import MERGED, Schedule

NOT_YET = math.nan
"""When a gradient ends that has not, or never will."""


class Recorder:
    """Growing lists behind a Schedule; the simulator and the Ray runtime both write here.

    `hold`, `let_go`, `sent` and `received` record nothing: whoever executes while the schedule is
    being made learns from them which gradients and versions may still be asked for.
    """

    def __init__(self, workers: int, shards: int, clockless: bool = False) -> None:
        self.workers = workers
        self.shards = shards
        self.clockless = clockless
        self.worker: list[int] = []
        self.step: list[int] = []
        self.start_s: list[float] = []
        self.end_s: list[float] = []
        self.stamp: list[int] = []
        self.read: list[tuple[int, ...]] = []
        self.group_shard: list[int] = []
        self.group_time_s: list[float] = []
        self.group_scale: list[float] = []
        self.group_size: list[int] = []
        self.group_rows: list[int] = []
        self.group_weights: dict[int, tuple[float, ...]] = {}
        """Of those groups whose rows do not all count the same."""
        self.drops: list[tuple[int, int, float, str, int]] = []
        self.members: list[tuple[int, int, float, int]] = []
        self.crossings: list[tuple[int, int, int, int, float, int, float]] = []
        self.replies: list[int] = []
        """Three numbers each, one after the other: some policies make one at every gradient."""
        self.steps: list[int] = []
        """Of each row, where they differ."""
        self.anew: set[tuple[int, int]] = set()
        self.about: dict[str, Any] = {}

    def start(self, worker: int, step: int, stamp: int, read: Sequence[int], now_s: float) -> int:
        """A gradient begins; the answer is its row."""
        self.worker.append(worker)
        self.step.append(step)
        self.start_s.append(now_s)
        self.end_s.append(NOT_YET)
        self.stamp.append(stamp)
        self.read.append(tuple(read))
        return len(self.worker) - 1

    def finish(self, row: int, now_s: float) -> None:
        self.end_s[row] = now_s

    def apply(
        self,
        shard: int,
        rows: Sequence[int],
        scale: float,
        now_s: float,
        weights: tuple[float, ...] = (),
    ) -> None:
        if weights:
            self.group_weights[len(self.group_shard)] = weights
        self.group_shard.append(shard)
        self.group_time_s.append(now_s)
        self.group_scale.append(scale)
        self.group_rows += rows
        self.group_size.append(len(rows))

    def drop(self, shard: int, row: int, reason: str, now_s: float) -> None:
        self.drops.append((row, shard, now_s, reason, len(self.group_shard)))

    def member(self, worker: int, joined: bool, now_s: float) -> None:
        self.members.append((worker, int(joined), now_s, len(self.group_shard)))

    def begin_anew(self, worker: int, step: int) -> None:
        """What the worker keeps for itself begins anew with this step, as with step 0."""
        self.anew.add((worker, step))

    def merge(self, shard: int, into: int, rows: Sequence[int], now_s: float) -> None:
        """These gradients of the same worker go with row `into`, averaged."""
        self.drops.extend((row, shard, now_s, MERGED, len(self.group_shard)) for row in rows)

    def crossing(
        self,
        worker: int,
        shard: int,
        pull: bool,
        crosses: bool,
        now_s: float,
        deviation: float = math.nan,
    ) -> None:
        """A link has decided on one push or reply."""
        after = len(self.group_shard)
        self.crossings.append((worker, shard, int(pull), int(crosses), now_s, after, deviation))

    def reply(self, shard: int, extra: int, after: int) -> None:
        """So many replies more than the gradients and returns that a shard has just decided on,
        where `after` groups had been applied before."""
        if extra:
            self.replies += (shard, extra, after)

    def hold(self, row: int) -> None:
        """A message, a server's memory or a worker's average refers to this gradient."""

    def let_go(self, row: int) -> None:
        """One that held this gradient does so no longer."""

    def sent(self, worker: int, shard: int, version: int) -> None:
        """The shard's parameters, of this version, are on their way to the worker."""

    def received(self, worker: int, shard: int, version: int, kept: bool) -> None:
        """They have come, and are now in the worker's view or were not wanted any more."""

    def schedule(self) -> Schedule:
        reasons = tuple(sorted({d[3] for d in self.drops}))
        replies = _ints(self.replies).reshape(-1, 3)
        made = Schedule(
            workers=self.workers,
            shards=self.shards,
            worker=_ints(self.worker),
            step=_ints(self.step),
            start_s=_floats(self.start_s),
            end_s=_floats(self.end_s),
            stamp=_ints(self.stamp),
            read=_table(self.read, self.shards),
            group_shard=_ints(self.group_shard),
            group_time_s=_floats(self.group_time_s),
            group_scale=_floats(self.group_scale),
            group_start=np.cumsum(_ints([0, *self.group_size])),
            group_rows=_ints(self.group_rows),
            group_weights=self._weights(),
            drop_row=_ints([d[0] for d in self.drops]),
            drop_shard=_ints([d[1] for d in self.drops]),
            drop_time_s=_floats([d[2] for d in self.drops]),
            drop_reason=_ints([reasons.index(d[3]) for d in self.drops]),
            drop_after=_ints([d[4] for d in self.drops]),
            member_worker=_ints([m[0] for m in self.members]),
            member_joined=_ints([m[1] for m in self.members]),
            member_time_s=_floats([m[2] for m in self.members]),
            member_after=_ints([m[3] for m in self.members]),
            wire_worker=_ints([c[0] for c in self.crossings]),
            wire_shard=_ints([c[1] for c in self.crossings]),
            wire_pull=_ints([c[2] for c in self.crossings]),
            wire_sent=_ints([c[3] for c in self.crossings]),
            wire_time_s=_floats([c[4] for c in self.crossings]),
            wire_after=_ints([c[5] for c in self.crossings]),
            wire_deviation=_floats([c[6] for c in self.crossings]),
            reply_shard=replies[:, 0].copy(),
            reply_extra=replies[:, 1].copy(),
            reply_after=replies[:, 2].copy(),
            steps=_ints(self.steps),
            reasons=reasons,
            clockless=self.clockless,
            about=self.about,
        )
        return self._told_anew(made) if self.anew else made

    def _told_anew(self, made: Schedule) -> Schedule:
        """With the column, unless it says only what is found without."""
        steps = zip(self.worker, self.step, strict=True)
        fresh = _ints([at[1] == 0 or at in self.anew for at in steps])
        return made if (made.fresh_rows == fresh).all() else replace(made, fresh=fresh)

    def _weights(self) -> "np.ndarray[Any, np.dtype[np.float64]]":
        """One for each row of a group; none where no group has any."""
        if not self.group_weights:
            return np.empty(0)
        out = np.repeat(1 / _ints(self.group_size), self.group_size)
        start = np.cumsum([0, *self.group_size])
        for group, weights in self.group_weights.items():
            out[start[group] : start[group + 1]] = weights
        return out


def _ints(values: Sequence[int]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.fromiter(values, np.int64, len(values))


def _table(rows: Sequence[Sequence[int]], columns: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    values = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * columns)
    return values.reshape(len(rows), columns)


def _floats(values: Sequence[float]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.fromiter(values, np.float64, len(values))
