"""Collects what the drivers decide, row by row and group by group, and makes the Schedule of it."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tardigrad.schedule.schedule import Schedule


class Recorder:
    """Growing lists behind a Schedule; the simulator and the Ray runtime both write here."""

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
        self.group_start: list[int] = [0]
        self.group_rows: list[int] = []
        self.drops: list[tuple[int, int, float, str, int]] = []
        self.members: list[tuple[int, int, float, int]] = []
        self.about: dict[str, Any] = {}

    def start(self, worker: int, step: int, stamp: int, read: Sequence[int], now_s: float) -> int:
        """A gradient begins; the answer is its row."""
        self.worker.append(worker)
        self.step.append(step)
        self.start_s.append(now_s)
        self.end_s.append(math.nan)
        self.stamp.append(stamp)
        self.read.append(tuple(read))
        return len(self.worker) - 1

    def finish(self, row: int, now_s: float) -> None:
        self.end_s[row] = now_s

    def apply(self, shard: int, rows: Sequence[int], scale: float, now_s: float) -> None:
        self.group_shard.append(shard)
        self.group_time_s.append(now_s)
        self.group_scale.append(scale)
        self.group_rows.extend(rows)
        self.group_start.append(len(self.group_rows))

    def drop(self, shard: int, row: int, reason: str, now_s: float) -> None:
        self.drops.append((row, shard, now_s, reason, len(self.group_shard)))

    def member(self, worker: int, joined: bool, now_s: float) -> None:
        self.members.append((worker, int(joined), now_s, len(self.group_shard)))

    def schedule(self) -> Schedule:
        reasons = tuple(sorted({d[3] for d in self.drops}))
        rows = len(self.worker)
        return Schedule(
            workers=self.workers,
            shards=self.shards,
            worker=_ints(self.worker),
            step=_ints(self.step),
            start_s=_floats(self.start_s),
            end_s=_floats(self.end_s),
            stamp=_ints(self.stamp),
            read=np.array(self.read, dtype=np.int64).reshape(rows, self.shards),
            group_shard=_ints(self.group_shard),
            group_time_s=_floats(self.group_time_s),
            group_scale=_floats(self.group_scale),
            group_start=_ints(self.group_start),
            group_rows=_ints(self.group_rows),
            drop_row=_ints([d[0] for d in self.drops]),
            drop_shard=_ints([d[1] for d in self.drops]),
            drop_time_s=_floats([d[2] for d in self.drops]),
            drop_reason=_ints([reasons.index(d[3]) for d in self.drops]),
            drop_after=_ints([d[4] for d in self.drops]),
            member_worker=_ints([m[0] for m in self.members]),
            member_joined=_ints([m[1] for m in self.members]),
            member_time_s=_floats([m[2] for m in self.members]),
            member_after=_ints([m[3] for m in self.members]),
            reasons=reasons,
            clockless=self.clockless,
            about=self.about,
        )


def _ints(values: Sequence[int]) -> "np.ndarray[Any, np.dtype[np.int64]]":
    return np.array(values, dtype=np.int64)


def _floats(values: Sequence[float]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    return np.array(values, dtype=np.float64)
