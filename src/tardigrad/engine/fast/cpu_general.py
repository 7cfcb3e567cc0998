"""The fast engine on a CPU for any schedule: batches of gradients, then windows of updates.

A batch is computed in pieces, which are kept until every shard has applied their rows. A window is
as many updates as one kernel can make: of single gradients, all in one piece.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.core.trees import named, not_finite
from tardigrad.engine.execution import ShardedExecution
from tardigrad.engine.fast.batches import Batches
from tardigrad.engine.fast.cpu_shard import CpuShard
from tardigrad.engine.fast.gradients import Computed, Gradients, padded
from tardigrad.engine.fast.view_places import VersionSlots
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import Program
from tardigrad.engine.run import Diverged


@dataclass
class _Held:
    """A piece of computed gradients, and how often its rows will still be applied."""

    computed: Computed
    uses: int

    def __post_init__(self) -> None:
        self.losses: list[float] = self.computed.losses.tolist()
        self.wrong = _not_finite_rows(self.computed.grads)


class CpuGeneral(ShardedExecution):
    """Executes a schedule batch by batch.

    Where a batch ends or a window is cut never depends on where an evaluation or a checkpoint fell:
    batches are a function of the schedule, and a window's size does not change its bits.
    """

    name = "fast"
    shards: list[CpuShard]

    def __init__(
        self,
        job: Job,
        batches: Batches,
        slots: Sequence[VersionSlots],
        gradients: Gradients,
        program: Program | None,
    ) -> None:
        super().__init__(job)
        schedule = job.schedule
        self.measure_gap = "gap" in job.measures
        self._batches, self._gradients = batches, gradients
        self.chunk = batches.chunk
        self._windows = program is not None
        self.shards = [
            CpuShard(job, s, part, program, slots[s]) for s, part in enumerate(job.parts())
        ]
        self._done = job.updates_at
        self._sizes = np.diff(schedule.group_start)
        self._uses = np.bincount(schedule.group_rows, minlength=schedule.rows)
        self._batch = 0
        self._where: dict[int, tuple[int, int]] = {}
        self._held: dict[int, _Held] = {}
        self._next_piece = 0

    def _advance(self, until: int) -> None:
        batches, stop = self._batches, self.schedule.groups
        if until < self.total:
            stop = int(np.searchsorted(self._done, until))
        while self._batch < batches.count and batches.window[self._batch] <= self.position:
            self._compute()
        self._apply(min(stop, int(batches.window[self._batch])))

    # -- gradients

    def _compute(self) -> None:
        """The next batch."""
        rows = self._batches.of(self._batch)
        self._batch += 1
        if not len(rows):
            return
        at = 0
        for computed in self._gradients(self._views(rows), rows):
            mine = rows[at : at + len(computed.grads)]
            at += len(mine)
            uses = int(self._uses[mine].sum())
            self._hold(self._next_piece, computed, mine, uses)
            self._next_piece += 1

    def _hold(self, piece: int, computed: Computed, rows: Ints, uses: int) -> None:
        self._held[piece] = _Held(computed, uses)
        for index, row in enumerate(rows.tolist()):
            self._where[row] = (piece, index)

    def _views(self, rows: Ints) -> Tensor:
        """The composite of the versions that each row read, one a (`padded`) row."""
        if len(self.shards) == 1:
            return self.shards[0].gathered(rows)
        views = self.shards[0].theta.new_zeros(len(rows), padded(self.sharding.bounds[-1]))
        for s, shard in enumerate(self.shards):
            part = self.sharding.slice(s)
            views[:, part] = shard.gathered(rows)[:, : part.stop - part.start]
        return views

    # -- updates

    def _apply(self, stop: int) -> None:
        """Groups up to `stop`, all of whose gradients have been computed.

        Shards do not see each other's parameters once gradients are there, so each goes through
        its own groups, as many at a time as one piece serves.
        """
        schedule, begin = self.schedule, self.position
        cuts = [
            int(after)
            for after in schedule.member_after[self._member :].tolist()
            if begin < after < stop
        ]
        for low, high in zip([begin, *cuts], [*cuts, stop], strict=True):
            self._follow_members(low)
            self._look_at(low, high)
            for s in range(schedule.shards):
                groups = np.arange(low, high)
                if schedule.shards > 1:
                    groups = groups[schedule.group_shard[low:high] == s]
                self._apply_at(s, groups)
            self._forget(low, high)
            self.position = high

    def _apply_at(self, s: int, groups: Ints) -> None:
        schedule, shard = self.schedule, self.shards[s]
        part = self.sharding.slice(s)
        at = 0
        while at < len(groups):
            group = int(groups[at])
            rows = schedule.group(group).tolist()
            if not self._windows or len(rows) > 1 or int(schedule.worker[rows[0]]) in shard.left:
                where = [self._where[row] for row in rows]
                grads = [self._held[piece].computed.grads[index, part] for piece, index in where]
                self._gap(s, rows)
                shard.apply(rows, grads)
                at += 1
                continue
            piece, places, workers = self._where[rows[0]][0], [], []
            while at < len(groups):
                row = int(schedule.group_rows[schedule.group_start[groups[at]]])
                worker = int(schedule.worker[row])
                if self._sizes[groups[at]] > 1 or self._where[row][0] != piece:
                    break
                if worker in shard.left or (worker in workers and shard.owns):
                    break
                places.append(self._where[row][1])
                workers.append(worker)
                at += 1
                if self.measure_gap:
                    break
            self._gap(s, rows)
            shard.window(self._held[piece].computed.grads[:, part], places, workers)

    def _gap(self, s: int, rows: list[int]) -> None:
        if self.measure_gap and s == 0:
            self.history.gap += [self.shards[0].gap(row) for row in rows]

    def _look_at(self, low: int, high: int) -> None:
        """Refuse what is not finite, and record the rest."""
        schedule = self.schedule
        for group in range(low, high):
            rows = schedule.group(group).tolist()
            losses = []
            for row in rows:
                piece, index = self._where[row]
                held, update = self._held[piece], int(self._done[group])
                losses.append(held.losses[index])
                if not math.isfinite(losses[-1]):
                    raise Diverged(update, int(schedule.worker[row]), losses[-1])
                if index in held.wrong:
                    worker, wrong = int(schedule.worker[row]), held.wrong[index]
                    raise Diverged(update, worker, wrong, "a gradient")
            if not schedule.group_shard[group]:
                self._record(losses, map(self._statistics, rows) if self.buffers else ())

    def _statistics(self, row: int) -> tuple[Tensor, ...]:
        """Of the row's batch (BatchNorm)."""
        piece, index = self._where[row]
        return tuple(t[index] for t in self._held[piece].computed.statistics)

    def _forget(self, low: int, high: int) -> None:
        """Let go of pieces all of whose rows have been applied everywhere."""
        start = self.schedule.group_start
        for row in self.schedule.group_rows[start[low] : start[high]].tolist():
            piece, _ = self._where[row]
            held = self._held[piece]
            held.uses -= 1
            self._uses[row] -= 1
            if not self._uses[row]:
                del self._where[row]
            if not held.uses:
                del self._held[piece]

    # -- saving

    def tensors(self) -> dict[str, Tensor]:
        out = super().tensors()
        for piece, held in self._held.items():
            out |= named(tuple(held.computed), f"piece.{piece}")
        return out

    def _facts(self) -> dict[str, Any]:
        return {
            **super()._facts(),
            **self._batches.facts(),
            "batch": self._batch,
            "next_piece": self._next_piece,
            "pieces": {str(p): (h.uses, len(h.computed.statistics)) for p, h in self._held.items()},
            "where": [(row, *place) for row, place in self._where.items()],
        }

    def _check_same(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self._batches.check_same(facts, form="pieces")
        super()._check_same(tensors, facts)

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        super()._restore(tensors, facts)
        self._batch, self._next_piece = facts["batch"], facts["next_piece"]
        done = self.schedule.group_rows[: self.schedule.group_start[self.position]]
        self._uses -= np.bincount(done, minlength=self.schedule.rows)
        for name, (uses, statistics) in facts["pieces"].items():
            at = f"piece.{name}"
            kept = tuple(tensors[f"{at}.2.{i}"] for i in range(statistics))
            computed = Computed(tensors[f"{at}.0"], tensors[f"{at}.1"], kept)
            self._held[int(name)] = _Held(computed, uses)
        self._where = {row: (piece, index) for row, piece, index in facts["where"]}


def _not_finite_rows(grads: Tensor) -> dict[int, float]:
    """The first NaN or infinity of each row that has one."""
    found = {}
    if not math.isfinite(float(grads.sum())):
        found = {row: not_finite(grad) for row, grad in enumerate(grads)}
    return {row: wrong for row, wrong in found.items() if wrong is not None}
