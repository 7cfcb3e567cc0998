"""What one shard decides, and the schedule of several that all decide alike.

Where messages take no time, every shard hears of a push before anything else happens: the event
loop hands an arrival to shard 0, 1, … in turn, and the answers after that. All shards are at the
same version whenever an arrival comes, so they apply and drop the same rows, and a worker starts
with the last shard's answer. A schedule of several shards is therefore one shard's with each
decision said once per shard.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tardigrad.core.arrays import Floats, Ints
from tardigrad.scheduling.schedule import Schedule


def _no_ints() -> Ints:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class OneShard:
    """A schedule at one shard.

    Args:
        version: that each row read, which is its stamp too.
        group_rows: of the groups, one after the other.
        group_size: how many of them belong to each; one number for all.
        group_scale: of every group.
        drop_reason: of every drop.
        drop_after: how many groups had been applied by then.
        reply_extra: replies beyond one per gradient decided, where there were any (or fewer).
        reply_after: how many groups had been applied before.
        reply_applies: 1 where that event applied a group.
    """

    workers: int
    worker: Ints
    step: Ints
    start_s: Floats
    end_s: Floats
    version: Ints
    group_rows: Ints
    group_time_s: Floats
    group_size: int | Ints = 1
    group_scale: float = 1.0
    drop_row: Ints = field(default_factory=_no_ints)
    drop_time_s: Floats = field(default_factory=lambda: np.empty(0))
    drop_after: Ints = field(default_factory=_no_ints)
    drop_reason: str = ""
    reply_extra: Ints = field(default_factory=_no_ints)
    reply_after: Ints = field(default_factory=_no_ints)
    reply_applies: Ints = field(default_factory=_no_ints)

    def schedule(self, shards: int, about: dict[str, Any], clockless: bool = False) -> Schedule:
        updates = len(self.group_time_s)
        sizes = np.broadcast_to(self.group_size, updates)
        ends = np.cumsum(np.repeat(sizes, shards))
        # Every shard's copy of a group begins where the group does.
        begins = np.repeat(np.cumsum(sizes) - sizes, shards) - (ends - np.repeat(sizes, shards))
        rows = self.group_rows
        if shards > 1:
            rows = rows[np.arange(int(ends[-1])) + np.repeat(begins, np.repeat(sizes, shards))]
        groups, drops, replies = updates * shards, len(self.drop_row), len(self.reply_extra)
        each = np.arange(shards)
        # A shard that applies has seen the shards before it do so.
        before = self.reply_applies[:, None] * each
        return Schedule(
            workers=self.workers,
            shards=shards,
            worker=self.worker,
            step=self.step,
            start_s=self.start_s,
            end_s=self.end_s,
            stamp=self.version,
            read=np.repeat(self.version[:, None], shards, axis=1),
            group_shard=np.tile(each, updates),
            group_time_s=np.repeat(self.group_time_s, shards),
            group_scale=np.full(groups, self.group_scale),
            group_start=np.concatenate([[0], ends]),
            group_rows=rows,
            drop_row=np.repeat(self.drop_row, shards),
            drop_shard=np.tile(each, drops),
            drop_time_s=np.repeat(self.drop_time_s, shards),
            drop_reason=np.zeros(drops * shards, dtype=np.int64),
            drop_after=np.repeat(self.drop_after * shards, shards),
            reply_shard=np.tile(each, replies),
            reply_extra=np.repeat(self.reply_extra, shards),
            reply_after=(self.reply_after[:, None] * shards + before).ravel(),
            reasons=(self.drop_reason,) if drops else (),
            clockless=clockless,
            about=about,
        )
