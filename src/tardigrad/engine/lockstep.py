"""Making a schedule and executing it together, where control reads tensors.

The event loop runs; each group is executed the moment it is applied, and a link asks for a shard's
deviation as it is then. The finished schedule holds every decision, so that executing it again asks
nobody.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.clusters import Clockless, Cluster
from tardigrad.core.checks import require
from tardigrad.core.layout import Sharding
from tardigrad.engine.exact import Exact
from tardigrad.engine.job import Job
from tardigrad.links import Link
from tardigrad.policies import Policy
from tardigrad.rules import Rule, RuleState
from tardigrad.scheduling import Recorder, Schedule, control
from tardigrad.tasks import Task
from tardigrad.work import AnyWork, OneGradient


class _Sent(NamedTuple):
    """A version on its way to so many workers."""

    tensor: Tensor
    copies: int


class Lockstep(Exact):
    """The exact executor of a schedule that is still being made.

    Which versions and gradients may still be asked for is not known ahead: workers' views, replies
    on their way, and gradients that a message, a server or a worker holds are counted as they go.
    """

    def __init__(
        self,
        task: Task,
        rule: Rule,
        sharding: Sharding,
        policy: Policy,
        cluster: Cluster,
        updates: int,
        seed: int,
        link: Link,
        about: Mapping[str, Any],
        measures: Sequence[str] = (),
        work: AnyWork | None = None,
    ) -> None:
        self.decided_by = (policy, cluster, link)
        clockless = isinstance(cluster, Clockless)
        self.recorder = _Live(self, cluster.workers, sharding.shards, clockless)
        self.recorder.about = dict(about)
        # What it will be is decided as it goes; so far it names workers and shards.
        work = work or OneGradient()
        made = self.recorder.schedule()
        job = Job(made, task, rule, sharding, measures, work, link.codec)
        self._begin(job, self.recorder)
        self._merged = {}
        self._held_now: list[bool] = []
        self._begun = [0] * cluster.workers
        """The last row of each worker."""
        check_deviation(rule, link, self.shards[0].state)
        gate = link.realise(seed, self.shard_bytes)
        self.loop = control(
            policy, cluster, updates, seed, self.recorder, link, gate, self._deviation, work.batches
        )
        self._steps = self.loop.steps()
        self._done = 0
        self._held = [[shard.sent for shard in self.shards] for _ in range(cluster.workers)]
        self.in_flight: dict[tuple[int, int], _Sent] = {}
        self._parts: dict[int, list[Tensor]] = {}
        self._holders: dict[int, int] = {}
        self._recalled: list[float] | None = None

    @property
    def schedule(self) -> Schedule:
        """What has been decided so far."""
        return self.recorder.schedule()

    @property
    def updates(self) -> int:
        return min(shard.version for shard in self.shards)

    @property
    def samples(self) -> int:
        return self.shards[0].samples

    @property
    def finished(self) -> bool:
        return self.loop.done

    @property
    def time_s(self) -> float:
        return self.recorder.group_time_s[-1] if self.recorder.group_time_s else 0.0

    def updates_at_time(self, time_s: float) -> int:
        """All: how far it comes by then is not known ahead."""
        return self.total

    @property
    def total(self) -> int:
        return self.loop.updates or 0

    def advance(self) -> None:
        """What happens next: at most one group."""
        next(self._steps)
        self._done += 1

    def _deviation(self, shard: int) -> float:
        """v̄ now; while control is taken over the same way again, as it was."""
        if self._recalled is not None:
            return self._recalled.pop()
        deviation = self.rule.deviation(self.shards[shard].state)
        assert deviation is not None  # checked at the start
        return float(deviation.mean())

    def _view(self, row: int) -> Tensor:
        parts = self._parts.pop(row)
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    # What the event loop tells, through the recorder.

    def started(self, row: int) -> None:
        self._holders[row] = 1
        self._begun[self.recorder.worker[row]] = row
        if self._recalled is None:
            self._parts[row] = list(self._held[self.recorder.worker[row]])

    def applied(
        self, at: int, rows: Sequence[int], scale: float, weights: tuple[float, ...]
    ) -> None:
        if self._recalled is None:
            self._apply(at, rows, scale, weights)
        self.position += 1
        for row in rows:
            self.settled(at, row)

    def pushed(self, worker: int, crosses: bool) -> None:
        """To one shard after the other. Where errors are fed back, a push is encoded as soon as all
        are decided on, because the worker's next one needs what was left."""
        if self.errors is None or self._recalled is not None:
            return
        self._held_now.append(not crosses)
        if len(self._held_now) == len(self.shards):
            self._compute(self._begun[worker])
            self._held_now = []

    def _held_of(self, row: int) -> Sequence[bool]:
        return self._held_now

    def settled(self, at: int, row: int) -> None:
        """A push has been applied or dropped, with all that was merged into it."""
        for used in (*self._merged.pop((row, at), ()), row):
            self.let_go(used)

    def merged(self, at: int, into: int, rows: Sequence[int]) -> None:
        self._merged[into, at] = list(rows)

    def hold(self, row: int) -> None:
        self._holders[row] += 1

    def let_go(self, row: int) -> None:
        self._holders[row] -= 1
        if not self._holders[row]:
            del self._holders[row]
            self._parts.pop(row, None)
            self.computed.pop(row, None)

    def sent(self, worker: int, at: int, version: int) -> None:
        before = self.in_flight.get((at, version))
        copies = 0 if before is None else before.copies
        self.in_flight[at, version] = _Sent(self.shards[at].sent, copies + 1)

    def received(self, worker: int, at: int, version: int, kept: bool) -> None:
        tensor, copies = self.in_flight.pop((at, version))
        if copies > 1:
            self.in_flight[at, version] = _Sent(tensor, copies - 1)
        if kept:
            self._held[worker][at] = tensor

    def left(self, worker: int) -> None:
        if self._recalled is None:
            for shard in self.shards:
                shard.leave(worker)
            if self.errors is not None:
                self.errors.begin_anew(worker)

    def joined(self, worker: int) -> None:
        if self._recalled is None:
            for shard in self.shards:
                shard.join(worker)

    # Saving and going on.

    def tensors(self) -> dict[str, Tensor]:
        out = self._numbers()
        for (at, version), tensor in self._versions_held().items():
            out[f"versions.{at}.{version}"] = tensor
        riding = [c[-1] for c in self.recorder.crossings if c[2]]
        out["wire.deviation"] = torch.tensor(riding, dtype=torch.float64)
        return out

    @cached_property
    def _digest(self) -> str:
        """What the schedule is made of stands for what it will be."""
        made_of = [self.recorder.about, self.recorder.shards, self.total]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    def _executed(self, groups: int) -> str:
        """What it is made of, but for how long it goes on."""
        made_of = [self.recorder.about, self.recorder.shards]
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()

    def extends(self, facts: Mapping[str, Any]) -> bool:
        return facts["schedule"] != self._digest and facts.get("executed") == self._executed(0)

    def has_what_follows(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bool:
        return False  # the event loop has ended: what it would have asked next is not known

    def _facts(self) -> dict[str, Any]:
        return super()._facts() | {"steps": self._done}

    def _check_same(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Take control the same way again, with the deviations it heard then."""
        super()._check_same(tensors, facts)
        self._recalled = tensors["wire.deviation"].tolist()[::-1]
        try:
            for _ in range(facts["steps"]):
                self.advance()
        except (IndexError, StopIteration):
            self._recalled.append(math.nan)  # it asked for more than it heard then
        require(
            not self._recalled and self.position == facts["position"],
            "the policy and the link decide otherwise than when the checkpoint was made: resume "
            "with the code it was made with, or start in a new folder",
        )
        self._recalled = None

    def _restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Put the tensors back to where control stands."""
        self._restore_numbers(tensors, facts)
        for (at, version), sent in self.in_flight.items():
            self.in_flight[at, version] = sent._replace(tensor=tensors[f"versions.{at}.{version}"])
        assert self.loop.wire is not None
        for worker, view in enumerate(self.loop.wire.view):
            self._held[worker] = [tensors[f"versions.{at}.{v}"] for at, v in enumerate(view)]
        for row in self._holders:
            if row not in self.computed:
                read = self.recorder.read[row]
                self._parts[row] = [tensors[f"versions.{at}.{v}"] for at, v in enumerate(read)]

    def _versions_held(self) -> dict[tuple[int, int], Tensor]:
        held = {where: sent.tensor for where, sent in self.in_flight.items()}
        assert self.loop.wire is not None
        for view, parts in zip(self.loop.wire.view, self._held, strict=True):
            held |= dict(zip(enumerate(view), parts, strict=True))
        for row, parts in self._parts.items():
            held |= dict(zip(enumerate(self.recorder.read[row]), parts, strict=True))
        return held


def check_deviation(rule: Rule, link: Link, state: RuleState) -> None:
    """A link that reads the deviation needs a rule that keeps one; `state` is any of the rule's."""
    require(
        not link.reads_deviation or rule.deviation(state) is not None,
        f"{type(link).__name__} decides by the gradient's deviation, and this rule keeps none: "
        "use the rule fasgd, or a link that reads no tensors, such as Every(pull=10)",
    )


class _Live(Recorder):
    """Records, and tells the executor."""

    def __init__(self, execution: Lockstep, workers: int, shards: int, clockless: bool) -> None:
        super().__init__(workers, shards, clockless)
        self._execution = execution

    def start(self, worker: int, step: int, stamp: int, read: Sequence[int], now_s: float) -> int:
        row = super().start(worker, step, stamp, read, now_s)
        self._execution.started(row)
        return row

    def apply(
        self,
        shard: int,
        rows: Sequence[int],
        scale: float,
        now_s: float,
        weights: tuple[float, ...] = (),
    ) -> None:
        super().apply(shard, rows, scale, now_s, weights)
        self._execution.applied(shard, rows, scale, weights)

    def drop(self, shard: int, row: int, reason: str, now_s: float) -> None:
        super().drop(shard, row, reason, now_s)
        self._execution.settled(shard, row)

    def merge(self, shard: int, into: int, rows: Sequence[int], now_s: float) -> None:
        super().merge(shard, into, rows, now_s)
        self._execution.merged(shard, into, rows)

    def member(self, worker: int, joined: bool, now_s: float) -> None:
        super().member(worker, joined, now_s)
        if joined:
            self._execution.joined(worker)
        else:
            self._execution.left(worker)

    def crossing(
        self,
        worker: int,
        shard: int,
        pull: bool,
        crosses: bool,
        now_s: float,
        deviation: float = math.nan,
    ) -> None:
        super().crossing(worker, shard, pull, crosses, now_s, deviation)
        if not pull:
            self._execution.pushed(worker, crosses)

    def hold(self, row: int) -> None:
        self._execution.hold(row)

    def let_go(self, row: int) -> None:
        self._execution.let_go(row)

    def sent(self, worker: int, shard: int, version: int) -> None:
        self._execution.sent(worker, shard, version)

    def received(self, worker: int, shard: int, version: int, kept: bool) -> None:
        self._execution.received(worker, shard, version, kept)
