"""Where each version of a shard is kept: a slot of one table, given to another after its last use.

All of it is known before the run: which versions anybody reads, by when, and so how many slots
there must be (at most one more than there are gradients in the making).
"""

from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.engine.fast.lookahead import Batches
from tardigrad.scheduling import Schedule

UNREAD = -1


@dataclass(frozen=True)
class VersionSlots:
    """`of[v]` is the slot of version v, UNREAD where nobody reads it; `last[v]` the update (of this
    shard, from 0) from which on it is not needed; `count` how many slots there are."""

    of: Ints
    last: Ints
    count: int

    def alive(self, version: int) -> Ints:
        """The versions that must be kept when the shard stands at `version`."""
        made = slice(0, version + 1)
        return np.nonzero((self.of[made] != UNREAD) & (self.last[made] >= version))[0]


def assign_slots(schedule: Schedule, batches: Batches, shard: int) -> VersionSlots:
    """Slots for one shard, the one freed last reused first.

    A version is needed until the last update that applies a gradient computed at it (rules compare
    the two), and at least until the batch of that gradient has been computed. An update reads
    before it writes, so the version it makes may take the slot it was the last to read.
    """
    mine = np.nonzero(schedule.group_shard == shard)[0]
    updates = len(mine)
    # Made by how many of this shard's updates, when batch b is computed?
    made_by = np.searchsorted(mine, batches.window)
    last = np.full(updates + 1, -1, dtype=np.int64)
    counts = np.diff(batches.start)
    read = schedule.read[batches.rows, shard]
    np.maximum.at(last, read, np.repeat(made_by[:-1], counts))
    sizes = np.diff(schedule.group_start)
    here = np.repeat(schedule.group_shard == shard, sizes)
    update = np.repeat(np.arange(updates), sizes[mine])
    np.maximum.at(last, schedule.read[schedule.group_rows[here], shard], update)
    return _fill(last)


def _fill(last: Ints) -> VersionSlots:
    ends: list[list[int]] = [[] for _ in last]
    of = [UNREAD] * len(last)
    free: list[int] = []
    count = 0
    for version, update in enumerate(last.tolist()):
        if version:
            free.extend(ends[version - 1])  # what the update that makes this one frees
        if update >= 0:
            if not free:
                free.append(count)
                count += 1
            of[version] = free.pop()
            # Never before it exists: a version read by a batch may be applied nowhere.
            ends[max(update, version)].append(of[version])
    return VersionSlots(np.array(of), last, count)
