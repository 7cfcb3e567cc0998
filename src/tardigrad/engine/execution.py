"""What every engine has: where a job stands, its result, and how it is saved and resumed.

An engine adds which gradients are computed together, and who computes and applies them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.layout import Sharding
from tardigrad.core.trees import named, restored
from tardigrad.engine.job import Job
from tardigrad.engine.observer import Ended
from tardigrad.engine.run import History, Provenance, Run
from tardigrad.rules import RuleState
from tardigrad.scheduling import Schedule, traffic
from tardigrad.scheduling.prefix import executed_digest, prefix
from tardigrad.tasks.precision import computed_on


class Numbers(Protocol):
    """What a shard keeps, as far as results are read from it."""

    @property
    def theta(self) -> Tensor: ...
    @property
    def state(self) -> RuleState: ...


class Execution(ABC):
    """A job as it is executed. `position` counts groups applied; the driver evaluates, saves and
    stops between two calls of `advance_to`."""

    name: ClassVar[Literal["exact", "fast"]]
    """Whose checkpoints it goes on from."""
    recorded: ClassVar[tuple[str, ...]] = ("records", "loss", "gap")
    """What of the history a checkpoint holds."""
    shards: Sequence[Numbers]
    decided_by: tuple[object, ...] = ()
    """Who decides while it is executed; nobody where the schedule was made before."""
    chunk: int | None = None
    """Gradients computed at a time, where that was decided."""
    computed_before: Sequence[str] = ()
    """Where it was executed before it was resumed here."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.task, self.rule, self.sharding = job.task, job.rule, job.sharding
        self.history = History()
        self.buffers: tuple[Tensor, ...] = job.task.start_buffers()
        self.position = 0

    @property
    def schedule(self) -> Schedule:
        return self.job.schedule

    @property
    def shard_bytes(self) -> tuple[int, ...]:
        return self.job.shard_bytes

    @property
    def push_bytes(self) -> tuple[int, ...]:
        return self.job.push_bytes

    @property
    def updates(self) -> int:
        """Updates that every shard has made."""
        return int(self.job.updates_at[self.position])

    @property
    def total(self) -> int:
        """Updates to be made in all."""
        return self.schedule.updates

    @property
    def finished(self) -> bool:
        return self.position == self.schedule.groups

    @property
    def samples(self) -> int:
        """Samples in the gradients that shard 0 has applied."""
        return int(self.job.samples_at[self.position])

    @property
    def params(self) -> Tensor:
        return torch.cat([shard.theta for shard in self.shards])

    @property
    def average(self) -> Tensor | None:
        averages = [shard.state.average for shard in self.shards]
        return torch.cat([a[0] for a in averages]) if all(averages) else None

    @abstractmethod
    def advance_to(self, until: int) -> None:
        """Go on, at least by one group and at most until every shard has made `until` updates."""

    @property
    def time_s(self) -> float:
        """When the last group was applied, by the schedule's clock."""
        return float(self.schedule.group_time_s[self.position - 1]) if self.position else 0.0

    def updates_at_time(self, time_s: float) -> int:
        """With how many updates the schedule's clock has come to this time; at most all."""
        reached = np.searchsorted(self.schedule.group_time_s, time_s, side="left") + 1
        return int(self.job.updates_at[min(int(reached), self.schedule.groups)])

    def run(self, end: Ended | None = None) -> Run:
        """What there is now, as a result; of the schedule, what has been executed."""
        schedule = prefix(self.schedule, self.position)
        # Copied, because a captured graph goes on writing into its own.
        buffers = tuple(buffer.clone() for buffer in self.buffers)
        counted = traffic(schedule, self.shard_bytes, push_bytes=self.push_bytes)
        made = end or Ended.all_made(self.updates)
        return Run(
            self.params,
            self.history,
            schedule,
            buffers,
            self.average,
            counted,
            made,
            self.task,
            self.rule,
            self._provenance(),
            self.job.work,
            self.job.codec,
        )

    @property
    def computers(self) -> tuple[str, ...]:
        """Where it has been executed, in that order."""
        here = computed_on(self.shards[0].theta.device)
        return tuple(dict.fromkeys([*self.computed_before, here]))

    def _provenance(self) -> Provenance:
        sliced = Sharding.divide(self.task.layout, self.sharding.shards).bounds
        return Provenance(
            self.name,
            "slice" if self.sharding.bounds == sliced else "tensor",
            torch.get_num_threads(),
            self.chunk,
            not self.finished,
            self.computers,
        )

    def _record(self, losses: Sequence[float], batches: Iterable[tuple[Tensor, ...]]) -> None:
        """Losses and running buffers follow shard 0, in order of application: the next group's."""
        self.history.loss.append(sum(losses) / len(losses))
        for found in batches:
            if found:
                self.buffers = self.task.fold(self.buffers, found)

    # Saving and going on.

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name."""

    @cached_property
    def _digest(self) -> str:
        return self.schedule.digest

    def facts(self) -> dict[str, Any]:
        """What there is to save beside tensors."""
        return {
            "schedule": self._digest,
            "executed": self._executed(self.position),
            "position": self.position,
            "shards": [{"version": self.updates}],
            **self._facts(),
            **{name: getattr(self.history, name) for name in self.recorded},
        }

    def _executed(self, groups: int) -> str:
        """The digest of what has been executed after so many groups."""
        return executed_digest(self.schedule, groups)

    def extends(self, facts: Mapping[str, Any]) -> bool:
        """Whether what was saved is the beginning of this one, whose schedule goes on otherwise or
        longer."""
        groups = facts["position"]
        return (
            facts["schedule"] != self._digest
            and groups <= self.schedule.groups
            and facts.get("executed") == self._executed(groups)
        )

    def has_what_follows(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bool:
        """Of a run that this one extends: whether the views of gradients to come were saved."""
        return False

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Go on from what `tensors` and `facts` saved; another run's are refused."""
        require(
            facts["schedule"] == self._digest or self.extends(facts),
            "the checkpoint belongs to a run of another schedule: resume with the schedule it was "
            "made with, or start in a new folder",
        )
        self._check_same(tensors, facts)
        self.position = facts["position"]
        self.history = History(**{name: facts[name] for name in self.recorded})
        self._restore(tensors, facts)

    @abstractmethod
    def _facts(self) -> dict[str, Any]:
        """The engine's own."""

    @abstractmethod
    def _check_same(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Refuse what was saved of another task or rule, before anything has changed."""

    @abstractmethod
    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Put the engine's own back."""


class Shardlike(Numbers, Protocol):
    """A shard that saves itself and hears of workers that come and go."""

    def join(self, worker: int) -> None: ...
    def leave(self, worker: int) -> None: ...
    def numbers(self, prefix: str) -> dict[str, Tensor]: ...
    def tensors(self, prefix: str) -> dict[str, Tensor]: ...
    def facts(self) -> dict[str, Any]: ...
    def restore(
        self, prefix: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]
    ) -> None: ...


class ShardedExecution(Execution):
    """For any number of shards, and workers that come and go: what takes one step after another."""

    shards: Sequence[Shardlike]

    def __init__(self, job: Job) -> None:
        super().__init__(job)
        self._member = 0

    def advance_to(self, until: int) -> None:
        before = self.updates
        while self.updates == before and not self.finished:
            self._advance(until)

    @abstractmethod
    def _advance(self, until: int) -> None:
        """Apply the next group; or as many as are ready, until every shard has `until` updates."""

    def _follow_members(self, group: int) -> None:
        """Tell the shards who came and went before this group; who left takes its rows along."""
        schedule = self.schedule
        while (
            self._member < len(schedule.member_after)
            and schedule.member_after[self._member] <= group
        ):
            worker = int(schedule.member_worker[self._member])
            for shard in self.shards:
                if schedule.member_joined[self._member]:
                    shard.join(worker)
                else:
                    shard.leave(worker)
            self._member += 1

    def tensors(self) -> dict[str, Tensor]:
        out = named(self.buffers, "buffers")
        for s, shard in enumerate(self.shards):
            out |= shard.tensors(f"shard.{s}")
        return out

    def _facts(self) -> dict[str, Any]:
        return {"member": self._member, "shards": [shard.facts() for shard in self.shards]}

    def _check_same(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        for s, shard in enumerate(self.shards):
            at = f"shard.{s}"
            varying = (f"{at}.own.", f"{at}.version.")
            saved = {
                name: tensor
                for name, tensor in tensors.items()
                if name.startswith(f"{at}.") and not name.startswith(varying)
            }
            check_same_shapes(shard.numbers(at), saved)

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self._member = facts["member"]
        self.buffers = restored(self.buffers, tensors, "buffers")
        for s, shard in enumerate(self.shards):
            shard.restore(f"shard.{s}", tensors, facts["shards"][s])


def check_same_shapes(ours: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Refuse a checkpoint whose tensors have other names, shapes or dtypes."""
    mine = {name: (tensor.shape, tensor.dtype) for name, tensor in ours.items()}
    theirs = {name: (tensor.shape, tensor.dtype) for name, tensor in saved.items()}
    wrong = sorted(name for name in {*mine, *theirs} if mine.get(name) != theirs.get(name))
    if wrong:
        raise ValueError(
            f"the checkpoint belongs to a run of another rule or task ({wrong[0]} differs): resume "
            "with the rule and task it was made with, or start in a new folder"
        )
