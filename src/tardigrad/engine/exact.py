"""The exact executor: one gradient at a time, in order, eager. The reference for all others."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.core.trees import named, not_finite
from tardigrad.engine.error_feedback import ErrorFeedback, decoded
from tardigrad.engine.execution import ShardedExecution
from tardigrad.engine.job import Job
from tardigrad.engine.run import Diverged
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.engine.versions import Versions, unsettled
from tardigrad.engine.worker_states import WorkerStates
from tardigrad.links import Identity, SliceOf
from tardigrad.rules import mean
from tardigrad.scheduling import Recorder, Schedule, held_back
from tardigrad.tasks import Gradient, Turn
from tardigrad.work import by_batch, changes_in_place, check_unchanged, delivered


class _Computed(NamedTuple):
    """A gradient that shards still have to apply, and the view it was computed at."""

    grad: Tensor
    """Where errors are fed back, as the shards see it."""
    view: Tensor
    loss: float
    buffers: tuple[Tensor, ...]
    batches: int


class Exact(ShardedExecution):
    """Executes a schedule's groups one after another.

    A gradient is computed when the first shard applies it, at the composite of the versions it
    read; each shard then takes its slice.
    """

    name = "exact"
    recorded = ("records", "loss", "gap", "b_staleness")
    shards: list[Shard]
    states: WorkerStates | None = None
    """What workers keep for themselves; None where they keep nothing."""

    def __init__(self, job: Job) -> None:
        self._begin(job, job.schedule)
        self._uses = self._uses_by(job.schedule.groups) + unsettled(job.schedule)
        wanted = self._uses > 0
        if job.keeps_state:
            self.states = WorkerStates(job, np.nonzero(wanted)[0])
            wanted |= self.states.wanted
        self._held_back = held_back(job.schedule) if self.errors is not None else None
        self.versions = Versions(job.schedule, np.nonzero(wanted)[0])
        for s, shard in enumerate(self.shards):
            self.versions.put(s, 0, shard.sent)

    def _begin(self, job: Job, rows: Schedule | Recorder) -> None:
        super().__init__(job)
        self._rows = rows
        self.shards = [
            Shard(job.rule, theta, layout, job.task.batch_size, job.task.epoch_size)
            for theta, layout in job.parts()
        ]
        self._merged = job.merged
        self._coded = not isinstance(job.codec, Identity)
        self.errors = ErrorFeedback(job.codec, job.sharding) if job.codec.error_feedback else None
        """What codecs have not sent; None where it is not fed back."""
        self.computed: dict[int, _Computed] = {}

    def _advance(self, until: int) -> None:
        self.advance()

    def advance(self) -> None:
        """Apply the next group."""
        schedule, group = self.schedule, self.position
        self._follow_members(group)
        at = int(schedule.group_shard[group])
        rows = schedule.group(group).tolist()
        self._apply(at, rows, float(schedule.group_scale[group]), schedule.weights(group))
        self.versions.put(at, self.shards[at].version, self.shards[at].sent)
        for row in rows:
            for used in (*self._merged.get((row, at), ()), row):
                self._uses[used] -= 1
                if not self._uses[used]:
                    del self.computed[used]
        self.position += 1

    def _apply(
        self, at: int, rows: Sequence[int], scale: float, weights: tuple[float, ...]
    ) -> None:
        """One group of rows at one shard; a row brings with it those that were merged into it."""
        shard, part = self.shards[at], self.sharding.slice(at)
        arrived, together = [], []
        for row in rows:
            went = self._merged.get((row, at), ())
            merged = [self._gradient(r) for r in went]
            own = self._gradient(row)
            together += [*merged, own]
            batches = sum(map(self.job.batches, (*went, row)))
            grad = self._arriving(row, at, part, merged, own)
            delay = shard.version - int(self._rows.read[row][at])
            worker = int(self._rows.worker[row])
            arrived.append(Arrived(worker, grad, own.view[part], delay, batches))
        if at == 0:
            found = (b for c in together for b in by_batch(c.buffers, c.batches))
            self._record([c.loss for c in together], found)
            self._measure(rows)
        shard.apply(arrived, scale, weights=weights)

    def _arriving(
        self, row: int, at: int, part: slice, merged: Sequence[_Computed], own: _Computed
    ) -> Tensor:
        """What a shard sees of a push."""
        if self.errors is not None:  # those that were held back are part of what came
            return own.grad[part]
        grad = mean([computed.grad[part] for computed in (*merged, own)])
        if not self._coded:
            return grad
        of = SliceOf(int(self._rows.worker[row]), int(self._rows.step[row]), at)
        return decoded(self.job.codec, grad, of)

    def _gradient(self, row: int) -> _Computed:
        computed = self.computed.get(row)
        if computed is None:
            if self.states is not None:
                for earlier in self.states.before(row):
                    self._compute(earlier)
            computed = self._compute(row)
        return computed

    def _compute(self, row: int) -> _Computed:
        worker, view = int(self._rows.worker[row]), self._view(row)
        loss, grad, buffers = self._work(row, view)
        value = float(loss)
        if not math.isfinite(value):
            raise Diverged(self.updates, worker, value)
        if self.errors is not None:
            if self.states is not None and self.states.fresh[row]:
                self.errors.begin_anew(worker)
            grad = self.errors.compensated(worker, grad)
        wrong = not_finite(grad)
        if wrong is not None:
            raise Diverged(self.updates, worker, wrong, "a gradient")
        if self.errors is not None:
            grad = self.errors.push(worker, int(self._rows.step[row]), grad, self._held_of(row))
        computed = _Computed(grad, view, value, buffers, self.job.batches(row))
        if self.states is None or self._uses[row]:  # else it is computed for the worker's state
            self.computed[row] = computed
        return computed

    def _work(self, row: int, view: Tensor) -> Gradient:
        """What a worker makes of its view."""
        work, turn, batches = self.job.work, self._turn(row), self.job.batches(row)
        state = () if self.states is None else self.states.of(row)
        before = changes_in_place(view, state)
        found = delivered(work.run(self.task, view, state, turn, batches))
        check_unchanged(view, state, before)
        if self.states is not None:
            self.states.after(row, found.state)
        return found.gradient

    def _held_of(self, row: int) -> Sequence[bool]:
        """At which shards a gate held the row's slice back."""
        assert self._held_back is not None
        held: list[bool] = self._held_back[row].tolist()
        return held

    def _turn(self, row: int) -> Turn:
        return self.job.turn(int(self._rows.worker[row]), int(self._rows.step[row]), row)

    def _view(self, row: int) -> Tensor:
        """What the row's gradient is computed at; asked once per row."""
        return self.versions.view(self.schedule.read[row].tolist())

    def _measure(self, rows: Sequence[int]) -> None:
        """Of gradients that shard 0 is about to apply."""
        measures = self.job.measures
        for row in rows:
            if "gap" in measures:
                part = self.sharding.slice(0)
                distance = self.shards[0].theta - self.computed[row].view[part]
                norm = float(torch.linalg.vector_norm(distance))
                self.history.gap.append(norm / math.sqrt(len(distance)))
            if "b_staleness" in measures:
                now = self._work(row, self.params)
                change = self.computed[row].grad - now.grad
                self.history.b_staleness.append(float(torch.linalg.vector_norm(change)))

    def _uses_by(self, groups: int) -> Ints:
        """How often each row's gradient is asked for by the first so many groups."""
        schedule = self.schedule
        entries = int(schedule.group_start[groups])
        rows = schedule.group_rows[:entries]
        uses = np.bincount(rows, minlength=schedule.rows)
        if self._merged:
            shards = np.repeat(schedule.group_shard, np.diff(schedule.group_start))[:entries]
            for pair in zip(rows.tolist(), shards.tolist(), strict=True):
                for row in self._merged.get(pair, ()):
                    uses[row] += 1
        return uses

    def tensors(self) -> dict[str, Tensor]:
        kept = {} if self.states is None else self.states.tensors()
        return self.versions.tensors() | kept | self._numbers()

    def _numbers(self) -> dict[str, Tensor]:
        """The shards, the running buffers and the gradients in hand."""
        out = super().tensors()
        for row, computed in self.computed.items():
            out |= {f"computed.{row}.grad": computed.grad, f"computed.{row}.view": computed.view}
            out |= named(computed.buffers, f"computed.{row}.buffers")
        return out if self.errors is None else out | self.errors.tensors()

    def _facts(self) -> dict[str, Any]:
        in_hand = {str(row): (c.loss, len(c.buffers)) for row, c in self.computed.items()}
        kept = {} if self.states is None else self.states.facts()
        if self.errors is not None:
            kept |= self.errors.facts()
        return super()._facts() | {"computed": in_hand} | kept

    def has_what_follows(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bool:
        if self.states is not None:
            return False  # nor were the views of those that are computed for a state alone
        schedule, position = self.schedule, facts["position"]
        before = self._uses_by(position)
        left = self._uses - before
        started = np.nonzero((before > 0) & (left > 0))[0].tolist()
        to_come = np.nonzero((before == 0) & (left > 0))[0]
        made = np.bincount(schedule.group_shard[:position], minlength=schedule.shards)
        for shard in range(schedule.shards):
            read = np.unique(schedule.read[to_come, shard])
            # Later ones are still to be made, and the last one is the shard's own.
            older = read[read < made[shard]].tolist()
            if any(f"versions.{shard}.{version}" not in tensors for version in older):
                return False
        return all(str(row) in facts["computed"] for row in started)

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self._restore_numbers(tensors, facts)
        before = self._uses_by(self.position)
        self._uses -= before
        seen = before > 0
        if self.states is not None:
            self.states.restore(tensors, facts)
            seen |= self.states.computed()
        reads: dict[tuple[int, int], int] = {}
        for row in np.nonzero(seen)[0].tolist():
            for shard_index, version in enumerate(self.schedule.read[row].tolist()):
                where = (shard_index, version)
                reads[where] = reads.get(where, 0) + 1
        self.versions.restore(tensors, reads)
        for s, shard in enumerate(self.shards):
            self.versions.put(s, shard.version, shard.sent)

    def _restore_numbers(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        super()._restore(tensors, facts)
        if self.errors is not None:
            self.errors.restore(tensors, facts)
        for name, (loss, buffers) in facts["computed"].items():
            at = f"computed.{name}"
            self.computed[int(name)] = _Computed(
                tensors[f"{at}.grad"],
                tensors[f"{at}.view"],
                loss,
                tuple(tensors[f"{at}.buffers.{i}"] for i in range(buffers)),
                self.job.batches(int(name)),
            )
