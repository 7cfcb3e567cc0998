"""What became of each gradient at each shard: when it got there, and how late it was."""

from typing import NamedTuple

import numpy as np

from tardigrad.core.arrays import Flags, Floats, Ints
from tardigrad.scheduling import Schedule


class Pushes(NamedTuple):
    """One line per gradient, one column per shard.

    A gradient that a link let be applied again counts when it was applied first; one that was
    neither applied nor dropped has version −1 and no time.
    """

    version: Ints
    """The shard's version when it was applied or dropped."""
    time_s: Floats
    applied: Flags
    delay: Ints
    """Updates since the version that it read; −1 where it never arrived."""

    @property
    def latest(self) -> Ints:
        """Per gradient, the largest delay with which a shard applied it; −1 where none did."""
        return np.asarray(np.where(self.applied, self.delay, -1).max(axis=1), dtype=np.int64)


def pushes(schedule: Schedule) -> Pushes:
    """Those of a whole schedule."""
    shape = (schedule.rows, schedule.shards)
    version, time_s = np.full(shape, -1, dtype=np.int64), np.full(shape, np.nan)
    for shard in range(schedule.shards):
        mine = np.nonzero(schedule.group_shard == shard)[0]
        dropped = schedule.drop_shard == shard
        rows = schedule.drop_row[dropped]
        version[rows, shard] = np.searchsorted(mine, schedule.drop_after[dropped])
        time_s[rows, shard] = schedule.drop_time_s[dropped]
    sizes = np.diff(schedule.group_start)
    last_first = slice(None, None, -1)  # so that the first application of a row stands
    place = (schedule.group_rows[last_first], np.repeat(schedule.group_shard, sizes)[last_first])
    version[place] = np.repeat(schedule.group_version, sizes)[last_first]
    time_s[place] = np.repeat(schedule.group_time_s, sizes)[last_first]
    applied = np.zeros(shape, dtype=bool)
    applied[place] = True
    delay = np.where(version < 0, -1, version - schedule.read)
    return Pushes(version, time_s, applied, np.asarray(delay, dtype=np.int64))
