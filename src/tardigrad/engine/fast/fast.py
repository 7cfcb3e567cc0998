"""The fast executor on the CPU: batched gradients, then windows of updates in one kernel."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.core.checks import require
from tardigrad.core.layout import Sharding
from tardigrad.core.trees import named, not_finite, restored
from tardigrad.engine.exact import check_same_shapes, follow_members
from tardigrad.engine.fast.gradients import Computed, Gradients, padded
from tardigrad.engine.fast.lookahead import Batches
from tardigrad.engine.fast.shard import FastShard
from tardigrad.engine.fast.slots import VersionSlots
from tardigrad.engine.kernels import Program
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, traffic
from tardigrad.tasks import Task


@dataclass
class _Held:
    """A piece of computed gradients, and how often its rows will still be applied."""

    computed: Computed
    uses: int

    def __post_init__(self) -> None:
        self.losses: list[float] = self.computed.losses.tolist()
        self.wrong = _not_finite_rows(self.computed.grads)


class Fast:
    """Executes a schedule batch by batch.

    `position` counts groups done. Where a batch ends or a window is cut never depends on where an
    evaluation or a checkpoint fell: batches are a function of the schedule, and a window's size
    does not change its bits.
    """

    name = "fast"

    def __init__(
        self,
        schedule: Schedule,
        task: Task,
        rule: Rule,
        sharding: Sharding,
        batches: Batches,
        slots: Sequence[VersionSlots],
        gradients: Gradients,
        program: Program | None,
        measures: Sequence[str] = (),
    ) -> None:
        self.schedule, self.task, self.rule, self.sharding = schedule, task, rule, sharding
        self.measure_gap = "gap" in measures
        self.history = History()
        self.position = 0
        self.buffers = task.start_buffers()
        self._batches, self._gradients = batches, gradients
        self._windows = program is not None
        theta = task.start()
        self.shard_bytes = tuple(
            (b - a) * theta.element_size() for a, b in itertools.pairwise(sharding.bounds)
        )
        self.shards = [
            FastShard(
                schedule,
                s,
                rule,
                program,
                theta[sharding.slice(s)],
                sharding.layouts[s],
                slots[s],
                task.batch_size,
                task.epoch_size,
            )
            for s in range(schedule.shards)
        ]
        self._done = _updates_at(schedule)
        self._sizes = np.diff(schedule.group_start)
        self._uses = np.bincount(schedule.group_rows, minlength=schedule.rows)
        self._batch = 0
        self._where: dict[int, tuple[int, int]] = {}
        self._held: dict[int, _Held] = {}
        self._next_piece = 0
        self._member = 0

    @property
    def updates(self) -> int:
        """Updates that every shard has made."""
        return int(self._done[self.position])

    @property
    def finished(self) -> bool:
        return self.position == self.schedule.groups

    @property
    def total(self) -> int:
        """Updates to be made in all."""
        return self.schedule.updates

    @property
    def samples(self) -> int:
        return self.shards[0].samples

    @property
    def params(self) -> Tensor:
        return torch.cat([shard.theta for shard in self.shards])

    @property
    def average(self) -> Tensor | None:
        averages = [shard.state.average for shard in self.shards]
        return torch.cat([a[0] for a in averages]) if all(averages) else None

    def advance_to(self, until: int) -> None:
        """Go on until every shard has made `until` updates, or to the end of a batch before it."""
        before, stop = self.updates, self.schedule.groups
        if until < self.total:
            stop = int(np.searchsorted(self._done, until))
        while self.updates == before and not self.finished:
            self._advance(stop)

    def _advance(self, stop: int) -> None:
        batches = self._batches
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
            self._record(low, high)
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

    def _record(self, low: int, high: int) -> None:
        """Losses and running buffers follow shard 0, in order of application."""
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
            if schedule.group_shard[group]:
                continue
            self.history.loss.append(sum(losses) / len(losses))
            if self.buffers:
                for row in rows:
                    piece, index = self._where[row]
                    statistics = self._held[piece].computed.statistics
                    self.buffers = self.task.fold(self.buffers, tuple(t[index] for t in statistics))

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

    def _follow_members(self, group: int) -> None:
        """Workers that left before this group take their rows with them."""
        self._member = follow_members(self.schedule, self._member, group, self.shards)

    # -- saving

    def run(self) -> Run:
        """What there is now, as a result."""
        schedule, counted = self.schedule, traffic(self.schedule, self.shard_bytes)
        return Run(self.params, self.history, schedule, self.buffers, self.average, counted)

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name."""
        out = named(self.buffers, "buffers")
        for s, shard in enumerate(self.shards):
            out |= shard.tensors(f"shard.{s}")
        for piece, held in self._held.items():
            out |= named(tuple(held.computed), f"piece.{piece}")
        return out

    @cached_property
    def _digest(self) -> str:
        return self.schedule.digest

    def facts(self) -> dict[str, Any]:
        return {
            "schedule": self._digest,
            **self._batches.facts(),
            "position": self.position,
            "batch": self._batch,
            "member": self._member,
            "next_piece": self._next_piece,
            "shards": [shard.facts() for shard in self.shards],
            "pieces": {str(p): (h.uses, len(h.computed.statistics)) for p, h in self._held.items()},
            "where": [(row, *place) for row, place in self._where.items()],
            "records": self.history.records,
            "loss": self.history.loss,
            "gap": self.history.gap,
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from what `tensors` and `facts` saved; another run's are refused."""
        require(
            facts["schedule"] == self._digest,
            "the checkpoint belongs to a run of another schedule: resume with the schedule it was "
            "made with, or start in a new folder",
        )
        self._batches.check_same(facts, form="pieces")
        for s, shard in enumerate(self.shards):
            mine = (f"shard.{s}.theta", f"shard.{s}.state")
            saved = {name: tensor for name, tensor in tensors.items() if name.startswith(mine)}
            check_same_shapes(shard.numbers(f"shard.{s}"), saved)
        self.position, self._batch = facts["position"], facts["batch"]
        self._member, self._next_piece = facts["member"], facts["next_piece"]
        self.history = History(facts["records"], facts["loss"], facts["gap"])
        self.buffers = restored(self.buffers, tensors, "buffers")
        for s, shard in enumerate(self.shards):
            shard.restore(f"shard.{s}", tensors, facts["shards"][s])
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


def _updates_at(schedule: Schedule) -> Ints:
    """After each number of groups, the updates that every shard has made."""
    if schedule.shards == 1:
        return np.arange(schedule.groups + 1)
    made = np.zeros((schedule.groups + 1, schedule.shards), dtype=np.int64)
    made[np.arange(schedule.groups) + 1, schedule.group_shard] = 1
    return np.asarray(np.cumsum(made, axis=0).min(axis=1))
