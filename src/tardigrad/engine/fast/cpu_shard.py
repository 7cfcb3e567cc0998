"""A shard's numbers as the fast engine holds them: tables of rows, changed in place by windows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.core.trees import leaves, named, restored
from tardigrad.engine.fast.coefficients import coefficients, scalar_table
from tardigrad.engine.fast.gradients import padded
from tardigrad.engine.fast.in_place import InPlace, copied
from tardigrad.engine.fast.view_places import VersionSlots, slot_table
from tardigrad.engine.job import Job, ShardPart
from tardigrad.engine.kernels import BoundWindows, CppKernel, Program
from tardigrad.engine.kernels.pieces import PieceShape
from tardigrad.engine.kernels.update_table import NOWHERE
from tardigrad.engine.shard import saved_left
from tardigrad.rules import Now, Push


class CpuShard(InPlace):
    """θ, state, the workers' own rows and the versions still needed, of one shard.

    `window` applies updates of single gradients in one kernel; `apply` any update, by the rule's
    own code: groups, and rules that take norms.
    """

    def __init__(
        self, job: Job, shard: int, part: ShardPart, program: Program | None, slots: VersionSlots
    ) -> None:
        rule, schedule, (theta, layout) = job.rule, job.schedule, part
        own = rule.start_own(theta, layout)
        super().__init__(theta.clone(), copied(rule.start(theta, layout)), own, schedule.workers)
        self.rule, self.layout, self.slots = rule, layout, slots
        self.version = 0
        # Padding is read by nobody, but gathered with the rest, so it must be numbers.
        self._buffer = theta.new_zeros(slots.count, padded(len(theta)))
        self.views = self._buffer[:, : len(theta)]
        if slots.of[0] != NOWHERE:
            self.views[slots.of[0]] = theta
        self._own = own
        self._start_own = leaves(own)
        self.came = np.zeros(schedule.workers, dtype=bool)
        self.left: set[int] = set()
        """Workers that have gone; a gradient of theirs may still come."""
        self._read = schedule.read[:, shard]
        self._worker = schedule.worker
        self._scalars = scalar_table(job, shard)
        self._windows: BoundWindows | None = None
        if program is not None:
            self._table = slot_table(schedule, slots, shard)
            self._windows = CppKernel(program, theta.dtype).bound(
                self.theta,
                self.states,
                self.owns,
                [PieceShape(len(theta), len(theta))],
                self.views,
                self._table.on(theta.device),
                coefficients(program, self._scalars, theta),
            )

    def window(self, grads: Tensor, places: Sequence[int], workers: Sequence[int]) -> None:
        """The next len(places) updates, each of the one gradient at its place in `grads`."""
        assert self._windows is not None
        begin, end = self.version, self.version + len(places)
        self._table.grad[begin:end] = places
        self._windows.run([grads], begin, end)
        self.came[list(workers)] = True
        self.version = end

    def apply(self, rows: Sequence[int], grads: Sequence[Tensor]) -> None:
        """The next update, of a group of rows and their gradients, by `Rule.apply`."""
        scalars = self._scalars[self.version]
        hosts = list(scalars[3:])
        split = len(self.rule.correction.host(1))
        now = Now(scalars[1], scalars[2], tuple(hosts[:split]), tuple(hosts[split:]))
        workers = list(dict.fromkeys(int(self._worker[row]) for row in rows))
        owns = [self._own_of(worker) for worker in workers]
        whose = [workers.index(int(self._worker[row])) for row in rows]
        pushes = []
        for row, grad in zip(rows, grads, strict=True):
            read = int(self._read[row])
            late = torch.tensor(self.version - read + 1, dtype=torch.float64)
            pushes.append(Push(grad, self.views[self.slots.of[read]], late))
        theta, state, new_owns = self.rule.apply(
            self.theta, self.state, owns, whose, pushes, now, self.layout
        )
        for worker, own in zip(workers, new_owns, strict=True):
            if worker in self.left:
                state = self.rule.leave(state, own)
        sent = self.rule.send(theta, state, now, len(pushes))
        # Copied first, because an output may be one of the buffers written below.
        theta, sent = theta.clone(), sent.clone()
        for old, new in zip(leaves(self.state), leaves(state), strict=True):
            old.copy_(new)
        for worker, own in zip(workers, new_owns, strict=True):
            if worker in self.left:
                continue
            self.came[worker] = True
            for table, new in zip(self.owns, leaves(own), strict=True):
                table[worker] = new
        self.theta.copy_(theta)
        self.version += 1
        if self.slots.of[self.version] != NOWHERE:
            self.views[self.slots.of[self.version]] = sent

    def gathered(self, rows: Ints) -> Tensor:
        """The versions that these rows read, in rows of their own that are `padded`."""
        return self._buffer.index_select(0, torch.from_numpy(self.slots.of[self._read[rows]]))

    def gap(self, row: int) -> float:
        """Root mean square of θ − view."""
        view = self.views[self.slots.of[self._read[row]]]
        distance: Tensor = torch.linalg.vector_norm(self.theta - view)
        return float(distance) / float(np.sqrt(len(view)))

    def leave(self, worker: int) -> None:
        """A worker has gone; its rows start anew if it comes back."""
        self.left.add(worker)
        if not self.came[worker]:
            return
        state = copied(self.rule.leave(self.state, self._own_of(worker)))
        for old, new in zip(leaves(self.state), leaves(state), strict=True):
            old.copy_(new)
        for table, start in zip(self.owns, self._start_own, strict=True):
            table[worker] = start
        self.came[worker] = False

    def join(self, worker: int) -> None:
        self.left.discard(worker)

    def _own_of(self, worker: int) -> Any:
        names = named(self._own, "own")
        rows = {name: table[worker] for name, table in zip(names, self.owns, strict=True)}
        return restored(self._own, rows, "own")

    # -- saving

    def numbers(self, prefix: str) -> dict[str, Tensor]:
        """θ and the rule's state by name."""
        return {f"{prefix}.theta": self.theta} | named(self.state, f"{prefix}.state")

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """Everything needed to go on from here, by name."""
        out = self.numbers(prefix)
        for version in self.slots.alive(self.version).tolist():
            out[f"{prefix}.version.{version}"] = self.views[self.slots.of[version]]
        for worker in np.nonzero(self.came)[0].tolist():
            out |= named(self._own_of(worker), f"{prefix}.own.{worker}")
        return out

    def facts(self) -> dict[str, Any]:
        came = np.nonzero(self.came)[0].tolist()
        return {"version": self.version, "came": came, "left": sorted(self.left)}

    def restore(self, prefix: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self.version, self.left = facts["version"], saved_left(facts, self._own)
        self.came[facts["came"]] = True
        for name, tensor in self.numbers(prefix).items():
            tensor.copy_(tensors[name])
        for version in self.slots.alive(self.version).tolist():
            self.views[self.slots.of[version]] = tensors[f"{prefix}.version.{version}"]
        for worker in facts["came"]:
            for name, row in named(self._own_of(worker), f"{prefix}.own.{worker}").items():
                row.copy_(tensors[name])
