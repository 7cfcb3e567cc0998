"""Where views lie from the update that makes them to the last that reads them.

All of it is known before the run: which versions anybody reads, and by when. Views lie in rows of
one buffer, and who places them says which row:

- *Slots* (`assign_slots`, `in_slots`): each version has a slot, a row of its own that is given to
  another version after its last use. The fewest rows there can be; a batch gathers its views.
- *Blocks* (`in_blocks_or_slots`): the update that makes a view writes it into the very rows where
  its batch will be computed, and nothing is ever gathered. A block is taken when its first view
  comes and given back after its batch's window. Where delays differ widely, many blocks stand half
  empty; then views wait in slots.
- *Two stages and a pool* (`in_stages`), for a GPU, where gradients wait for their updates too.
"""

from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.engine.fast.batches import Batches
from tardigrad.engine.kernels.update_table import NOWHERE, UpdateTable
from tardigrad.scheduling import Schedule

ROOM, SMALL_BYTES = 1.5, 2**30
"""Blocks may take so many times the rows that slots would (10,000 perceptrons then fit 10 GiB), or
so many bytes."""


@dataclass(frozen=True)
class VersionSlots:
    """`of[v]` is the slot of version v, NOWHERE where nobody reads it; `last[v]` the update (of
    this shard, from 0) from which on it is not needed; `count` how many slots there are."""

    of: Ints
    last: Ints
    count: int

    def alive(self, version: int) -> Ints:
        """The versions that must be kept when the shard stands at `version`."""
        made = slice(0, version + 1)
        return np.nonzero((self.of[made] != NOWHERE) & (self.last[made] >= version))[0]


@dataclass(frozen=True)
class ViewPlaces:
    """For one shard whose updates apply one gradient each: `table` says which rows each uses,
    `count` how many rows of views there are.

    `blocks`: per batch, the first of the consecutive rows in which its views lie; None where they
    are gathered. `moves`: per batch, (from, to) of rows that are copied after its window.
    """

    table: UpdateTable
    count: int
    blocks: Ints | None = None
    moves: tuple[Ints, ...] = ()


class RowPool:
    """Hands out rows, `width` at a time and those that were given back last first, so that there
    are as few as can be."""

    def __init__(self, width: int = 1) -> None:
        self._width = width
        self._free: list[int] = []
        self.size = 0

    def take(self) -> int:
        """The first of `width` rows."""
        if self._free:
            return self._free.pop()
        self.size += self._width
        return self.size - self._width

    def give_back(self, first: int) -> None:
        self._free.append(first)


def assign_slots(schedule: Schedule, batches: Batches, shard: int) -> VersionSlots:
    """Slots for one shard.

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
    ends: list[list[int]] = [[] for _ in last]
    of = [NOWHERE] * len(last)
    slots = RowPool()
    for version, until in enumerate(last.tolist()):
        if version:
            for freed in ends[version - 1]:  # by the update that makes this one
                slots.give_back(freed)
        if until >= 0:
            of[version] = slots.take()
            # Never before it exists: a version read by a batch may be applied nowhere.
            ends[max(until, version)].append(of[version])
    return VersionSlots(np.array(of), last, slots.size)


def slot_table(schedule: Schedule, slots: VersionSlots, shard: int = 0) -> UpdateTable:
    """Of a shard's updates by the first gradient of each; where that lies is not said."""
    mine = schedule.group_shard == shard
    first = schedule.group_rows[schedule.group_start[:-1][mine]]
    table = UpdateTable(len(first))
    table.grad[:] = 0
    table.view[:] = slots.of[schedule.read[first, shard]]
    table.own[:] = schedule.worker[first]
    table.out[:] = slots.of[1 : len(first) + 1]
    return table


def in_slots(schedule: Schedule, batches: Batches) -> ViewPlaces:
    """For gradients that are applied in the order of computing (`just_in_time`): a batch's lie in
    rows 0, 1, … of one buffer, and nothing of it is left when the next batch begins."""
    slots = assign_slots(schedule, batches, 0)
    table = slot_table(schedule, slots)
    table.grad[:] = _within_batch(batches)
    return ViewPlaces(table, slots.count)


def in_blocks_or_slots(
    schedule: Schedule,
    batches: Batches,
    row_bytes: int,
    room: float = ROOM,
    small_bytes: int = SMALL_BYTES,
) -> ViewPlaces:
    """Blocks where they take at most `room` times the rows of slots, or few bytes; else
    `in_slots`."""
    slots = in_slots(schedule, batches)
    blocks, count = _blocks(schedule, batches)
    if blocks is None or count > max(room * slots.count, small_bytes // row_bytes):
        return slots
    table = UpdateTable(schedule.groups)
    table.grad[:] = slots.table.grad
    table.own[:] = slots.table.own
    table.view[:] = np.repeat(blocks, np.diff(batches.window)) + table.grad
    read = schedule.read[schedule.group_rows, 0]
    made = read > 0
    table.out[read[made] - 1] = table.view[made]
    return ViewPlaces(table, count, blocks)


def in_stages(schedule: Schedule, batches: Batches) -> ViewPlaces:
    """Rows for views and, in a buffer of the same form, for gradients that wait (`look_ahead`).

    A buffer is two *stages* and a *pool*. Batch b computes its gradients at the views in stage
    b mod 2, in order; the updates of its window write the views of batch b + 1 straight into the
    other stage. What the window did not apply is moved into the pool before the stage is needed
    again. So nothing is gathered before a batch and nothing scattered after it. Both stages begin
    with the first version, which the pieces of the first batch read.
    """
    stage = batches.largest
    blocks = np.arange(batches.count) % 2 * stage
    base = 2 * stage
    where = np.full(schedule.rows, NOWHERE, dtype=np.int64)
    applied_at = np.full(schedule.rows, schedule.groups, dtype=np.int64)
    applied_at[schedule.group_rows] = np.arange(schedule.groups)
    table = UpdateTable(schedule.groups)
    table.own[:] = schedule.worker[schedule.group_rows]
    moves: list[Ints] = []
    pool = RowPool()
    leaving: list[list[int]] = [[] for _ in range(batches.count + 1)]
    window_of = np.searchsorted(batches.window, np.arange(schedule.groups), side="right") - 1
    for b in range(batches.count):
        rows = batches.of(b)
        begin, end = int(batches.window[b]), int(batches.window[b + 1])
        where[rows] = blocks[b] + np.arange(len(rows))
        applied = schedule.group_rows[begin:end]
        table.grad[begin:end] = table.view[begin:end] = where[applied]
        if b + 1 < batches.count:
            read = schedule.read[batches.of(b + 1), 0]
            table.out[read[read > 0] - 1] = blocks[b + 1] + np.nonzero(read > 0)[0]
        for row in leaving[b]:
            pool.give_back(row)
        late = rows[applied_at[rows] >= end]
        kept = np.array([pool.take() for _ in late], dtype=np.int64)
        for gradient, row in zip(late.tolist(), kept.tolist(), strict=True):
            # Free once the window that applies it is over.
            leaving[int(window_of[applied_at[gradient]]) + 1].append(row)
        moves.append(np.stack([where[late], base + kept], axis=1))
        where[late] = base + kept
    return ViewPlaces(table, base + pool.size, blocks, tuple(moves))


def _blocks(schedule: Schedule, batches: Batches) -> tuple[Ints | None, int]:
    """The first row of each batch's block and the rows in all; None where several gradients read
    one version, which cannot lie in several blocks."""
    read = schedule.read[schedule.group_rows, 0]
    if len(np.unique(read[read > 0])) != (read > 0).sum():
        return None, 0
    starts = np.zeros(batches.count, dtype=np.int64)
    # A batch's first view is made in this window; −1: it is there from the beginning.
    first = np.minimum.reduceat(read, batches.window[:-1]) - 1 if batches.count else read
    begins = np.searchsorted(batches.window, first, side="right") - 1
    opened: list[list[int]] = [[] for _ in range(batches.count + 1)]
    for batch, window in enumerate(begins.tolist()):
        opened[window + 1].append(batch)
    blocks = RowPool(int(np.diff(batches.window).max(initial=1)))
    for batch in range(batches.count):
        # Opened by the window before: what that window's own batch used is not yet free.
        for new in opened[batch]:
            starts[new] = blocks.take()
        if batch:
            blocks.give_back(int(starts[batch - 1]))
    return starts, blocks.size


def _within_batch(batches: Batches) -> Ints:
    """Of each update, the place of its gradient in its batch."""
    sizes = np.diff(batches.window)
    return np.arange(int(batches.window[-1])) - np.repeat(batches.window[:-1], sizes)
