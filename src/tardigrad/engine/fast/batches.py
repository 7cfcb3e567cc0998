"""Which gradients are computed together, from the schedule alone.

Every worker that is not waiting owns one gradient whose view and samples are already fixed. So when
an update needs a gradient that has not been computed, others can be computed with it: all that are
ready by then (`look_ahead`, for a GPU), or those that the next updates apply (`just_in_time`, for a
CPU). Batches are a function of the schedule and the chunk alone: resuming changes nothing.
"""

import hashlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.core.checks import require
from tardigrad.scheduling import Schedule


@dataclass(frozen=True)
class Batches:
    """Batch b computes rows[start[b] : start[b + 1]], then groups window[b] to window[b + 1] − 1
    have all they need. Rows that no group applies are never computed."""

    rows: Ints
    start: Ints
    window: Ints
    chunk: int | None = None
    """The most gradients of a batch; None where that is not what cut them."""

    @property
    def count(self) -> int:
        return len(self.start) - 1

    @property
    def largest(self) -> int:
        """Gradients of the largest batch; 1 with none."""
        return int(np.diff(self.start).max(initial=1))

    def of(self, batch: int) -> Ints:
        return self.rows[self.start[batch] : self.start[batch + 1]]

    def cut(self, calls: Callable[[int], Sequence[int]]) -> "Batches":
        """Where single gradients stand in the order of their updates: each batch cut as `calls`
        says, the sizes, of which the last may be larger than what is left."""
        cuts = [0]
        for size in np.diff(self.window).tolist():
            end = cuts[-1] + size
            cuts += [min(end, at) for at in itertools.accumulate(calls(size), initial=cuts[-1])][1:]
        bounds = np.array(cuts)
        return Batches(self.rows, bounds, bounds, self.chunk)

    def facts(self) -> dict[str, Any]:
        """For a checkpoint, whose gradients at hand and whose bits depend on the cuts."""
        cuts = hashlib.sha256(self.start.tobytes() + self.window.tobytes()).hexdigest()
        return {"cuts": cuts, "chunk": self.chunk}

    def check_same(self, facts: Mapping[str, Any], form: str) -> None:
        """Refuse a checkpoint that was made with other batches, or whose facts have no `form`:
        what only one form of the fast engine saves."""
        require(
            form in facts,
            "the checkpoint was made by the other form of the fast engine, which measures (such as "
            "gap) and tardigrad's version decide: resume with those it was made with, or start in "
            "a new folder",
        )
        chunk = facts.get("chunk")
        if "cuts" in facts:
            same = facts["cuts"] == self.facts()["cuts"]
        else:  # version 0.1 told a digest of the windows, or only how many batches there are
            windows = hashlib.sha256(self.window.tobytes()).hexdigest()
            same = facts.get("windows", windows) == windows
            same = same and facts.get("batches", self.count) == self.count
        made_with = "another chunk" if chunk is None else f"chunk = {chunk}"
        require(
            same,
            f"the checkpoint was made with {made_with} and this is chunk = {self.chunk}, so its "
            f"batches end elsewhere: resume with "
            f"{'the chunk it was made with' if chunk is None else made_with}, "
            "or start in a new folder",
        )


def look_ahead(schedule: Schedule) -> Batches:
    """The largest batches there are; within each, the gradients needed first come first.

    At the start every worker's gradient is ready, later far fewer may be at once: room for that one
    batch would be most of the memory. So it is cut to the size of the largest after it, and the
    windows of its pieces but the last are empty.
    """
    ready = ready_at(schedule)
    first_use = np.full(schedule.rows, schedule.groups, dtype=np.int64)
    group_of = np.repeat(np.arange(schedule.groups), np.diff(schedule.group_start))
    np.minimum.at(first_use, schedule.group_rows, group_of)
    needs = _needs(schedule, ready)
    wanted = np.nonzero(first_use < schedule.groups)[0]
    by_ready = wanted[np.argsort(ready[wanted], kind="stable")]
    ready_sorted = ready[by_ready]
    rows: list[Ints] = []
    start, window = [0], [0]
    while window[-1] < schedule.groups:
        upto = int(np.searchsorted(ready_sorted, window[-1], side="right"))
        new = by_ready[start[-1] : upto]
        rows.append(new[np.lexsort((new, first_use[new]))])
        start.append(upto)
        window.append(_first_above(needs, window[-1]))
    sizes = np.diff(start)
    most = int(sizes[1:].max(initial=0))
    if most and sizes[0] > most:
        cuts = list(range(0, start[1], most))
        start[:1], window[:1] = cuts, [0] * len(cuts)
    return Batches(np.concatenate(rows) if rows else by_ready, np.array(start), np.array(window))


def just_in_time(schedule: Schedule, chunk: int) -> Batches:
    """Batches of at most `chunk` gradients, each of what the next updates apply and nothing more.

    Where a few gradients at a time are enough to keep the machine busy, this needs the least
    memory: no gradient waits for its update. A batch ends before the first update that applies a
    gradient whose view does not exist when the batch begins.
    """
    needs = _needs(schedule, ready_at(schedule))
    rows, used = _in_order_of_use(schedule)
    start, window = [0], [0]
    while window[-1] < schedule.groups:
        reach = _first_above(needs, window[-1])
        if reach == window[-1]:
            raise ValueError(f"group {reach} of the schedule needs a view that nobody ever sent")
        end = int(np.searchsorted(used, reach))
        if end > start[-1] + chunk:
            # A cut batch serves the groups before the first use of what it left out.
            end = start[-1] + chunk
            reach = int(used[end])
        start.append(end)
        window.append(reach)
    return Batches(rows, np.array(start), np.array(window), chunk)


def _in_order_of_use(schedule: Schedule) -> tuple[Ints, Ints]:
    """The rows that groups apply, in the order of their first use; and the group of that use."""
    group_of = np.repeat(np.arange(schedule.groups), np.diff(schedule.group_start))
    rows, at = np.unique(schedule.group_rows, return_index=True)
    order = np.argsort(at, kind="stable")
    return rows[order], group_of[at[order]]


def ready_at(schedule: Schedule) -> Ints:
    """For each row, how many groups must have been applied before its view exists."""
    out = np.zeros(schedule.rows, dtype=np.int64)
    for shard in range(schedule.shards):
        mine = np.nonzero(schedule.group_shard == shard)[0]
        # Version v of the shard exists once its v-th group has been applied.
        made = np.concatenate([[0], mine + 1])
        read = schedule.read[:, shard]
        known = read < len(made)
        out = np.maximum(out, np.where(known, made[np.where(known, read, 0)], schedule.groups + 1))
    return out


def _needs(schedule: Schedule, ready: Ints) -> Ints:
    """For each group, how many groups must have been applied before its gradients can be there."""
    if not schedule.groups:
        return np.zeros(0, dtype=np.int64)
    return np.maximum.reduceat(ready[schedule.group_rows], schedule.group_start[:-1])


def _first_above(needs: Ints, position: int) -> int:
    """The first group from `position` on that needs more than `position` groups before it."""
    at, size = position, 256
    while at < len(needs):
        late = np.nonzero(needs[at : at + size] > position)[0]
        if len(late):
            return at + int(late[0])
        at, size = at + size, size * 2
    return len(needs)
