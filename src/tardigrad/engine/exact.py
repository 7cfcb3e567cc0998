"""The exact executor: one gradient at a time, in order, eager. The reference for all others."""

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.core.checks import require
from tardigrad.core.layout import Sharding
from tardigrad.core.trees import named, not_finite, restored
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.engine.versions import Versions
from tardigrad.rules import Rule, mean
from tardigrad.scheduling import Recorder, Schedule, traffic
from tardigrad.tasks import Task, Turn


class _Computed(NamedTuple):
    """A gradient that shards still have to apply, and the view it was computed at."""

    grad: Tensor
    view: Tensor
    loss: float
    buffers: tuple[Tensor, ...]


class Members(Protocol):
    """A shard as far as it hears of workers that come and go."""

    def join(self, worker: int) -> None: ...
    def leave(self, worker: int) -> None: ...


class Exact:
    """Executes a schedule's groups one after another.

    A gradient is computed when the first shard applies it, at the composite of the versions it
    read; each shard then takes its slice. `position` counts groups done.
    """

    name = "exact"

    def __init__(
        self,
        schedule: Schedule,
        task: Task,
        rule: Rule,
        sharding: Sharding,
        measures: Sequence[str] = (),
    ) -> None:
        self._begin(schedule, task, rule, sharding, measures)
        self._schedule = schedule
        self._merged: dict[tuple[int, int], list[int]] = schedule.merged
        self._uses = self._uses_by(schedule.groups)
        self._versions = Versions(schedule, np.nonzero(self._uses)[0])
        for s, shard in enumerate(self.shards):
            self._versions.put(s, 0, shard.sent)

    def _begin(
        self,
        rows: Schedule | Recorder,
        task: Task,
        rule: Rule,
        sharding: Sharding,
        measures: Sequence[str],
    ) -> None:
        self._rows = rows
        self.task = task
        self.rule = rule
        self.sharding = sharding
        self.measures = measures
        self.history = History()
        self.position = 0
        theta = task.start()
        self.shard_bytes = tuple(
            (b - a) * theta.element_size() for a, b in itertools.pairwise(sharding.bounds)
        )
        self.shards = [
            Shard(
                rule,
                theta[sharding.slice(s)],
                sharding.layouts[s],
                task.batch_size,
                task.epoch_size,
            )
            for s in range(sharding.shards)
        ]
        self.buffers = task.start_buffers()
        self._computed: dict[int, _Computed] = {}
        self._member = 0

    @property
    def schedule(self) -> Schedule:
        return self._schedule

    @property
    def updates(self) -> int:
        """Updates that every shard has made."""
        return min(shard.version for shard in self.shards)

    @property
    def params(self) -> Tensor:
        return torch.cat([shard.theta for shard in self.shards])

    @property
    def average(self) -> Tensor | None:
        averages = [shard.state.average for shard in self.shards]
        return torch.cat([a[0] for a in averages]) if all(averages) else None

    @property
    def samples(self) -> int:
        """Samples in the gradients that shard 0 has applied."""
        return self.shards[0].samples

    @property
    def finished(self) -> bool:
        return self.position == self.schedule.groups

    @property
    def total(self) -> int:
        """Updates to be made in all."""
        return self.schedule.updates

    def advance_to(self, until: int) -> None:
        """Go on by one update: as far as all shards must go for it."""
        before = self.updates
        while self.updates == before and not self.finished:
            self.advance()

    def advance(self) -> None:
        """Apply the next group."""
        schedule, group = self.schedule, self.position
        self._follow_members(group)
        at = int(schedule.group_shard[group])
        rows = schedule.group(group).tolist()
        self._apply(at, rows, float(schedule.group_scale[group]))
        self._versions.put(at, self.shards[at].version, self.shards[at].sent)
        for row in rows:
            for used in (*self._merged.get((row, at), ()), row):
                self._uses[used] -= 1
                if not self._uses[used]:
                    del self._computed[used]
        self.position += 1

    def _apply(self, at: int, rows: Sequence[int], scale: float) -> None:
        """One group of rows at one shard; a row brings with it those that were merged into it."""
        shard, part = self.shards[at], self.sharding.slice(at)
        arrived, together = [], []
        for row in rows:
            merged = [self._gradient(r) for r in self._merged.get((row, at), ())]
            own = self._gradient(row)
            together += [*merged, own]
            grad = mean([computed.grad[part] for computed in (*merged, own)])
            delay = shard.version - int(self._rows.read[row][at])
            worker = int(self._rows.worker[row])
            arrived.append(Arrived(worker, grad, own.view[part], delay, 1 + len(merged)))
        if at == 0:
            self._record(rows, together)
        shard.apply(arrived, scale)

    def _gradient(self, row: int) -> _Computed:
        computed = self._computed.get(row)
        if computed is None:
            worker, view = int(self._rows.worker[row]), self._view(row)
            loss, grad, buffers = self.task.gradient(view, self._turn(row))
            value = float(loss)
            if not math.isfinite(value):
                raise Diverged(self.updates, worker, value)
            grad = self.rule.prepare(grad)
            wrong = not_finite(grad)
            if wrong is not None:
                raise Diverged(self.updates, worker, wrong, "a gradient")
            computed = _Computed(grad, view, value, buffers)
            self._computed[row] = computed
        return computed

    def _turn(self, row: int) -> Turn:
        return Turn(int(self._rows.worker[row]), int(self._rows.step[row]), row)

    def _view(self, row: int) -> Tensor:
        """What the row's gradient is computed at; asked once per row."""
        return self._versions.view(self.schedule.read[row].tolist())

    def _record(self, rows: Sequence[int], together: Sequence[_Computed]) -> None:
        """Losses, running buffers and measures follow shard 0, in order of application."""
        self.history.loss.append(sum(c.loss for c in together) / len(together))
        for computed in together:
            if computed.buffers:
                self.buffers = self.task.fold(self.buffers, computed.buffers)
        for row in rows:
            if "gap" in self.measures:
                part = self.sharding.slice(0)
                distance = self.shards[0].theta - self._computed[row].view[part]
                norm = float(torch.linalg.vector_norm(distance))
                self.history.gap.append(norm / math.sqrt(len(distance)))
            if "b_staleness" in self.measures:
                now = self.task.gradient(self.params, self._turn(row))
                change = self._computed[row].grad - self.rule.prepare(now.grad)
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

    def _follow_members(self, group: int) -> None:
        """Workers that left before this group take their rows with them."""
        self._member = follow_members(self.schedule, self._member, group, self.shards)

    def run(self) -> Run:
        """What there is now, as a result."""
        schedule = self.schedule
        return Run(
            self.params,
            self.history,
            schedule,
            self.buffers,
            self.average,
            traffic(schedule, self.shard_bytes),
        )

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name."""
        return self._versions.tensors() | self._numbers()

    def _numbers(self) -> dict[str, Tensor]:
        """The shards, the running buffers and the gradients in hand."""
        out: dict[str, Tensor] = {}
        for s, shard in enumerate(self.shards):
            out |= shard.tensors(f"shard.{s}")
        out |= named(self.buffers, "buffers")
        for row, computed in self._computed.items():
            out |= {f"computed.{row}.grad": computed.grad, f"computed.{row}.view": computed.view}
            out |= named(computed.buffers, f"computed.{row}.buffers")
        return out

    @cached_property
    def _digest(self) -> str:
        return self.schedule.digest

    def facts(self) -> dict[str, Any]:
        return {
            "schedule": self._digest,
            "position": self.position,
            "member": self._member,
            "shards": [shard.facts() for shard in self.shards],
            "computed": {str(row): (c.loss, len(c.buffers)) for row, c in self._computed.items()},
            "records": self.history.records,
            "loss": self.history.loss,
            "gap": self.history.gap,
            "b_staleness": self.history.b_staleness,
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from what `tensors` and `facts` saved; another run's are refused."""
        self._check_same(tensors, facts)
        self.position, self._member = facts["position"], facts["member"]
        self._restore_numbers(tensors, facts)
        before = self._uses_by(self.position)
        self._uses -= before
        reads: dict[tuple[int, int], int] = {}
        for row in np.nonzero(before)[0].tolist():
            for shard_index, version in enumerate(self.schedule.read[row].tolist()):
                where = (shard_index, version)
                reads[where] = reads.get(where, 0) + 1
        self._versions.restore(tensors, reads)

    def _check_same(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        require(
            facts["schedule"] == self._digest,
            "the checkpoint belongs to a run of another schedule: resume with the schedule it was "
            "made with, or start in a new folder",
        )
        for s, shard in enumerate(self.shards):
            at = f"shard.{s}."
            saved = {name: tensor for name, tensor in tensors.items() if name.startswith(at)}
            check_same_shapes(shard.tensors(f"shard.{s}"), saved)

    def _restore_numbers(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.history = History(facts["records"], facts["loss"], facts["gap"], facts["b_staleness"])
        for s, shard in enumerate(self.shards):
            shard.restore(f"shard.{s}", tensors, facts["shards"][s])
        self.buffers = restored(self.buffers, tensors, "buffers")
        for name, (loss, buffers) in facts["computed"].items():
            at = f"computed.{name}"
            self._computed[int(name)] = _Computed(
                tensors[f"{at}.grad"],
                tensors[f"{at}.view"],
                loss,
                tuple(tensors[f"{at}.buffers.{i}"] for i in range(buffers)),
            )


def follow_members(schedule: Schedule, done: int, group: int, shards: Sequence[Members]) -> int:
    """Tell the shards who came and went before this group, after the first `done` of them; how many
    that makes."""
    while done < len(schedule.member_after) and schedule.member_after[done] <= group:
        worker = int(schedule.member_worker[done])
        for shard in shards:
            if schedule.member_joined[done]:
                shard.join(worker)
            else:
                shard.leave(worker)
        done += 1
    return done


def check_same_shapes(ours: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Refuse a shard's checkpoint whose θ or rule state has other names, shapes or dtypes."""
    mine = {name: (tensor.shape, tensor.dtype) for name, tensor in ours.items()}
    theirs = {
        name: (tensor.shape, tensor.dtype) for name, tensor in saved.items() if ".own." not in name
    }
    wrong = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    if wrong:
        raise ValueError(
            f"the checkpoint belongs to a run of another rule or task ({wrong[0]} differs): resume "
            "with the rule and task it was made with, or start in a new folder"
        )
