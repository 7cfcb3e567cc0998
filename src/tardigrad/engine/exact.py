"""The exact executor: one gradient at a time, in order, eager. The reference for all others."""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tardigrad.checks import require
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.engine.versions import Versions
from tardigrad.layout import Sharding
from tardigrad.rules import Rule
from tardigrad.schedule import Schedule
from tardigrad.tasks import Task, Turn
from tardigrad.tensors import named, restored


class _Computed(NamedTuple):
    """A gradient that shards still have to apply, and the view it was computed at."""

    grad: Tensor
    view: Tensor
    loss: float
    buffers: tuple[Tensor, ...]


class Exact:
    """Executes a schedule's groups one after another.

    A gradient is computed when the first shard applies it, at the composite of the versions it
    read; each shard then takes its slice. `position` counts groups done.
    """

    def __init__(
        self, schedule: Schedule, task: Task, rule: Rule, sharding: Sharding, gap: bool = False
    ) -> None:
        self.schedule = schedule
        self.task = task
        self.rule = rule
        self.sharding = sharding
        self.measure_gap = gap
        self.history = History()
        self.position = 0
        theta = task.start()
        self.shards = [
            Shard(
                rule,
                theta[sharding.slice(s)],
                sharding.layouts[s],
                task.batch_size,
                task.epoch_size,
            )
            for s in range(schedule.shards)
        ]
        self.buffers = task.start_buffers()
        self._versions = Versions(schedule)
        for s, shard in enumerate(self.shards):
            self._versions.put(s, 0, shard.sent)
        self._computed: dict[int, _Computed] = {}
        self._uses = np.bincount(schedule.group_rows, minlength=schedule.rows)
        self._member = 0

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

    def advance(self) -> None:
        """Apply the next group."""
        schedule, group = self.schedule, self.position
        self._leave(group)
        at = int(schedule.group_shard[group])
        shard = self.shards[at]
        rows = schedule.group(group).tolist()
        arrived = []
        for row in rows:
            computed = self._gradient(row)
            part = self.sharding.slice(at)
            delay = shard.version - int(schedule.read[row, at])
            arrived.append(
                Arrived(int(schedule.worker[row]), computed.grad[part], computed.view[part], delay)
            )
        if at == 0:
            self._record(rows, arrived, shard)
        shard.apply(arrived, float(schedule.group_scale[group]))
        self._versions.put(at, shard.version, shard.sent)
        for row in rows:
            self._uses[row] -= 1
            if not self._uses[row]:
                del self._computed[row]
        self.position += 1

    def _gradient(self, row: int) -> _Computed:
        computed = self._computed.get(row)
        if computed is None:
            schedule = self.schedule
            worker, step = int(schedule.worker[row]), int(schedule.step[row])
            view = self._versions.view(schedule.read[row].tolist())
            loss, grad, buffers = self.task.gradient(view, Turn(worker, step, row))
            value = float(loss)
            if not math.isfinite(value):
                raise Diverged(self.updates, worker, value)
            computed = _Computed(self.rule.prepare(grad), view, value, buffers)
            self._computed[row] = computed
        return computed

    def _record(self, rows: list[int], arrived: list[Arrived], shard: Shard) -> None:
        """Losses and running buffers follow shard 0, in order of application."""
        losses = [self._computed[row].loss for row in rows]
        self.history.loss.append(sum(losses) / len(losses))
        for row in rows:
            if self._computed[row].buffers:
                self.buffers = self.task.fold(self.buffers, self._computed[row].buffers)
        if self.measure_gap:
            for push in arrived:
                distance = torch.linalg.vector_norm(shard.theta - push.view)
                self.history.gap.append(float(distance) / math.sqrt(len(push.view)))

    def _leave(self, group: int) -> None:
        """Workers that left before this group take their rows with them."""
        schedule = self.schedule
        while (
            self._member < len(schedule.member_after)
            and schedule.member_after[self._member] <= group
        ):
            if not schedule.member_joined[self._member]:
                for shard in self.shards:
                    shard.leave(int(schedule.member_worker[self._member]))
            self._member += 1

    def run(self) -> Run:
        """What there is now, as a result."""
        return Run(self.params, self.history, self.schedule, self.buffers, self.average)

    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name."""
        out = self._versions.tensors()
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
        }

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from what `tensors` and `facts` saved; another run's are refused."""
        require(
            facts["schedule"] == self._digest,
            "the checkpoint belongs to a run of another schedule: resume with the schedule it was "
            "made with, or start in a new folder",
        )
        for s, shard in enumerate(self.shards):
            at = f"shard.{s}."
            saved = {name: tensor for name, tensor in tensors.items() if name.startswith(at)}
            _check_fits(shard.tensors(f"shard.{s}"), saved)
        self.position, self._member = facts["position"], facts["member"]
        self.history = History(facts["records"], facts["loss"], facts["gap"])
        for s, shard in enumerate(self.shards):
            shard.restore(f"shard.{s}", tensors, facts["shards"][s])
        self.buffers = restored(self.buffers, tensors, "buffers")
        done = self.schedule.group_rows[: self.schedule.group_start[self.position]]
        self._uses -= np.bincount(done, minlength=self.schedule.rows)
        reads: dict[tuple[int, int], int] = {}
        for row in np.unique(done).tolist():
            for shard_index, version in enumerate(self.schedule.read[row].tolist()):
                where = (shard_index, version)
                reads[where] = reads.get(where, 0) + 1
        self._versions.restore(tensors, reads)
        for name, (loss, buffers) in facts["computed"].items():
            at = f"computed.{name}"
            self._computed[int(name)] = _Computed(
                tensors[f"{at}.grad"],
                tensors[f"{at}.view"],
                loss,
                tuple(tensors[f"{at}.buffers.{i}"] for i in range(buffers)),
            )


def _check_fits(ours: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
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
