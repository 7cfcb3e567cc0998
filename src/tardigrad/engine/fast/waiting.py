"""Where views wait for the batches that will read them, and where gradients wait for updates.

For schedules of one shard whose updates apply one gradient each, in the order of computing
(`just_in_time`): batch b computes its gradients into rows 0, 1, … of one buffer, and the updates of
its window apply them in that order, so nothing of it is left when the next batch begins.

A view may wait in the very *block* of rows in which its batch will be computed: the update that
makes it writes it there, and nothing is ever gathered. A block is taken when its first view comes
and given back after its batch's window. Where delays differ widely, many blocks stand half empty;
then views wait in slots and a batch gathers its own.
"""

from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.engine.fast.lookahead import Batches
from tardigrad.engine.fast.slots import UNREAD, assign_slots
from tardigrad.scheduling import Schedule

ROOM, SMALL_BYTES = 1.5, 2**30
"""Blocks may take so many times the rows that slots would (10,000 perceptrons then fit 10 GiB), or
so many bytes."""


@dataclass(frozen=True)
class Waiting:
    """`rows`: the window kernel's table (gradient, view, own row, where to write), one an update.
    `count`: rows for views. `blocks`: per batch, the first row of its block; None where views are
    gathered from rows[:, 1]."""

    rows: Ints
    count: int
    blocks: Ints | None


def why_not_one_by_one(schedule: Schedule) -> str | None:
    """None where every update applies one gradient, each once, at one shard, and nobody leaves."""
    if schedule.shards > 1:
        return "it has several shards"
    if (np.diff(schedule.group_start) != 1).any():
        return "its updates apply groups of gradients"
    if len(np.unique(schedule.group_rows)) != schedule.groups:
        return "a link applied gradients again"
    if len(schedule.member_after):
        return "workers came and went"
    return None


def place_views(
    schedule: Schedule,
    batches: Batches,
    row_bytes: int,
    room: float = ROOM,
    small_bytes: int = SMALL_BYTES,
) -> Waiting:
    """Blocks where they take at most `room` times the rows of slots, or few bytes; else slots."""
    table = np.empty((schedule.groups, 4), dtype=np.int64)
    table[:, 0] = np.arange(schedule.groups) - np.repeat(batches.window[:-1], _sizes(batches))
    table[:, 2] = schedule.worker[schedule.group_rows]
    slots = assign_slots(schedule, batches, 0)
    blocks, count = _blocks(schedule, batches)
    most = max(room * slots.count, small_bytes // row_bytes)
    if blocks is not None and count <= most:
        table[:, 1] = np.repeat(blocks, _sizes(batches)) + table[:, 0]
        read = schedule.read[schedule.group_rows, 0]
        table[:, 3] = UNREAD
        made = read > 0
        table[read[made] - 1, 3] = table[made, 1]
        return Waiting(table, count, blocks)
    table[:, 1] = slots.of[schedule.read[schedule.group_rows, 0]]
    table[:, 3] = slots.of[1:]
    return Waiting(table, slots.count, None)


def _blocks(schedule: Schedule, batches: Batches) -> tuple[Ints | None, int]:
    """The first row of each batch's block and the rows in all; None where several gradients read
    one version, which cannot lie in several blocks."""
    read = schedule.read[schedule.group_rows, 0]
    if len(np.unique(read[read > 0])) != (read > 0).sum():
        return None, 0
    starts = np.zeros(batches.count, dtype=np.int64)
    sizes = _sizes(batches)
    stage = int(sizes.max(initial=1))
    # A batch's first view is made in this window; −1: it is there from the beginning.
    first = np.minimum.reduceat(read, batches.window[:-1]) - 1 if batches.count else read
    begins = np.searchsorted(batches.window, first, side="right") - 1
    opened: list[list[int]] = [[] for _ in range(batches.count + 1)]
    for batch, window in enumerate(begins.tolist()):
        opened[window + 1].append(batch)
    free: list[int] = []
    count = 0
    for batch in range(batches.count):
        # Opened by the window before: what that window's own batch used is not yet free.
        for new in opened[batch]:
            if not free:
                free.append(count)
                count += stage
            starts[new] = free.pop()
        if batch:
            free.append(int(starts[batch - 1]))
    return starts, count


def _sizes(batches: Batches) -> Ints:
    return np.diff(batches.window)
