"""Which pushes a link held back."""

import numpy as np

from tardigrad.core.arrays import Flags
from tardigrad.scheduling.schedule import Schedule


def held_back(schedule: Schedule) -> Flags:
    """For each row and shard, whether a link held the slice back: what decisions tell.

    A worker's pushes to a shard and the link's decisions on them come in the order of its steps. A
    row without a decision was not pushed, or only after all that the schedule tells.
    """
    out = np.zeros((schedule.rows, schedule.shards), dtype=bool)
    if not len(schedule.wire_shard):
        return out
    pushed = np.isfinite(schedule.end_s) & schedule.finite & ~schedule.interrupted
    pushed[schedule.group_rows] = True
    for worker in range(schedule.workers):
        rows = np.nonzero(pushed & (schedule.worker == worker))[0]
        mine = (schedule.wire_worker == worker) & (schedule.wire_pull == 0)
        for shard in range(schedule.shards):
            sent = schedule.wire_sent[mine & (schedule.wire_shard == shard)]
            told = min(len(rows), len(sent))
            out[rows[:told], shard] = sent[:told] == 0
    return out
