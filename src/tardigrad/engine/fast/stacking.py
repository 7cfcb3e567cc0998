"""Several replicas of a run side by side: where each lies in a vector, and which share a kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tardigrad.core.trees import named, restored
from tardigrad.engine.fast.gradients import ALIGN
from tardigrad.engine.kernels import Program

BLOCK = 256
"""With several replicas, each begins a block of the window kernel: a block has one replica's
coefficients."""


@dataclass(frozen=True)
class Stacking:
    """How `replicas` vectors of `size` numbers lie in one, each padded with zeros; one alone is not
    padded, but its rows in buffers are."""

    size: int
    replicas: int = 1

    @property
    def stride(self) -> int:
        """From one replica to the next in a row of the buffers."""
        unit = ALIGN if self.replicas == 1 else BLOCK
        return -(-self.size // unit) * unit

    @property
    def row(self) -> int:
        """Numbers in a row of the buffers."""
        return self.replicas * self.stride

    def place(self, vectors: Sequence[Tensor]) -> Tensor:
        """Some replicas' vectors as one."""
        if self.replicas == 1:
            return vectors[0].clone()
        out = vectors[0].new_zeros(len(vectors), self.stride)
        for row, vector in zip(out, vectors, strict=True):
            row[: self.size] = vector
        return out.flatten()

    def of(self, vector: Tensor, at: int) -> Tensor:
        """The numbers of the replica at that place, not copied."""
        return vector[at * self.stride :][: self.size]

    def tree_of(self, tree: Any, at: int) -> Any:
        """The state of the replica at that place, not copied."""
        mine = {n: self.of(t, at) if t.numel() else t for n, t in named(tree, "t").items()}
        return restored(tree, mine, "t")

    def place_trees(self, trees: Sequence[Any]) -> Any:
        """Some replicas' states as one: each of their vectors placed, what is empty left so."""
        parts = [named(tree, "t") for tree in trees]
        placed = {
            name: self.place([part[name] for part in parts]) if tensor.numel() else tensor
            for name, tensor in parts[0].items()
        }
        return restored(trees[0], placed, "t")


def by_kernel(programs: Sequence[Program]) -> list[list[int]]:
    """Which programs differ in their coefficients alone, in order of their first."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, p in enumerate(programs):
        key = (p.steps, p.states, p.owns, p.coefficients, tuple(p.outputs.items()))
        groups.setdefault(key, []).append(i)
    return list(groups.values())


def stacked_coefficients(tables: Sequence[Tensor]) -> Tensor:
    """(updates, C), or of several replicas (replicas, updates, C)."""
    return tables[0] if len(tables) == 1 else torch.stack(list(tables))
