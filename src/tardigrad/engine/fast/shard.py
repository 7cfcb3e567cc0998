"""A shard's numbers as the fast engine holds them: tables of rows, changed in place by windows."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.core.layout import Layout
from tardigrad.core.trees import named, restored
from tardigrad.engine.fast.gradients import padded
from tardigrad.engine.fast.slots import UNREAD, VersionSlots
from tardigrad.engine.fast.tables import scalar_table
from tardigrad.engine.kernels import CppKernel, Program
from tardigrad.engine.shard import saved_left
from tardigrad.rules import Now, Push, Rule
from tardigrad.scheduling import Schedule


class FastShard:
    """θ, state, the workers' own rows and the versions still needed, of one shard.

    `window` applies updates of single gradients in one kernel; `apply` any update, by the rule's
    own code: groups, and rules that take norms.
    """

    def __init__(
        self,
        schedule: Schedule,
        shard: int,
        rule: Rule,
        program: Program | None,
        theta: Tensor,
        layout: Layout,
        slots: VersionSlots,
        batch_size: int,
        epoch_size: int,
    ) -> None:
        self.rule, self.layout, self.slots = rule, layout, slots
        self.theta = theta.clone()
        self.state = copied(rule.start(theta, layout))
        self.version = 0
        # Padding is read by nobody, but gathered with the rest, so it must be numbers.
        self._table = theta.new_zeros(slots.count, padded(len(theta)))
        self.views = self._table[:, : len(theta)]
        if slots.of[0] != UNREAD:
            self.views[slots.of[0]] = theta
        own = rule.start_own(theta, layout)
        self._own = own
        self._start_own = list(named(own, "").values())
        self.owns = [rows_of(start, schedule.workers) for start in self._start_own]
        self.came = np.zeros(schedule.workers, dtype=bool)
        self.left: set[int] = set()
        """Workers that have gone; a gradient of theirs may still come."""
        mine = np.nonzero(schedule.group_shard == shard)[0]
        self._read = schedule.read[:, shard]
        self._worker = schedule.worker
        self._scalars = scalar_table(schedule, rule, batch_size, epoch_size, shard)
        sizes = np.diff(schedule.group_start)[mine]
        self._samples = np.concatenate([[0], np.cumsum(sizes)]) * batch_size
        self._kernel = None if program is None else CppKernel(program, theta.dtype)
        if program is not None:
            first = schedule.group_rows[schedule.group_start[:-1][mine]]
            table = np.zeros((len(mine), 4), dtype=np.int64)
            table[:, 1] = slots.of[self._read[first]]
            table[:, 2] = schedule.worker[first]
            table[:, 3] = slots.of[1 : len(mine) + 1]
            self._rows = torch.from_numpy(table)
            self._coefficients = program.scalars.table(self._scalars).to(theta.dtype).contiguous()

    @property
    def samples(self) -> int:
        return int(self._samples[self.version])

    def window(self, grads: Tensor, places: Sequence[int], workers: Sequence[int]) -> None:
        """The next len(places) updates, each of the one gradient at its place in `grads`."""
        assert self._kernel is not None
        begin, end = self.version, self.version + len(places)
        self._rows[begin:end, 0] = torch.tensor(places)
        states = [t for t in named(self.state, "").values() if t.numel()]
        self._kernel.run(
            self.theta,
            states,
            self.owns,
            [grads],
            self.views,
            self._rows,
            self._coefficients,
            begin,
            end,
        )
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
        slots = [workers.index(int(self._worker[row])) for row in rows]
        pushes = []
        for row, grad in zip(rows, grads, strict=True):
            read = int(self._read[row])
            late = torch.tensor(self.version - read + 1, dtype=torch.float64)
            pushes.append(Push(grad, self.views[self.slots.of[read]], late))
        theta, state, new_owns = self.rule.apply(
            self.theta, self.state, owns, slots, pushes, now, self.layout
        )
        for worker, own in zip(workers, new_owns, strict=True):
            if worker in self.left:
                state = self.rule.leave(state, own)
        sent = self.rule.send(theta, state, now, len(pushes))
        # Copied first, because an output may be one of the buffers written below.
        theta, sent = theta.clone(), sent.clone()
        for old, new in zip(named(self.state, "").values(), _leaves(state), strict=True):
            old.copy_(new)
        for worker, own in zip(workers, new_owns, strict=True):
            if worker in self.left:
                continue
            self.came[worker] = True
            for table, new in zip(self.owns, _leaves(own), strict=True):
                table[worker] = new
        self.theta.copy_(theta)
        self.version += 1
        if self.slots.of[self.version] != UNREAD:
            self.views[self.slots.of[self.version]] = sent

    def gathered(self, rows: Ints) -> Tensor:
        """The versions that these rows read, in rows of their own that are `padded`."""
        return self._table.index_select(0, torch.from_numpy(self.slots.of[self._read[rows]]))

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
        for old, new in zip(_leaves(self.state), _leaves(state), strict=True):
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


def _leaves(tree: Any) -> list[Tensor]:
    return list(named(tree, "").values())


def copied(tree: Any) -> Any:
    """The same tree of other tensors."""
    return restored(tree, {n: t.clone() for n, t in named(tree, "t").items()}, "t")


def rows_of(start: Tensor, count: int) -> Tensor:
    """A row for each worker. Zeros take no memory until they are written to, so that workers who
    never come cost nothing."""
    table = start.new_zeros(count, len(start))
    if bool(start.any()):
        table[:] = start
    return table
