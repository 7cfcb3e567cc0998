"""Where each named tensor lies in the flat parameter vector, and how shards divide it."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Names, shapes and offsets of the tensors in one flat vector, in order.

    A shard's layout is a layout too: of its own slice, offsets counted from the slice's start.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Start of each tensor, and the total size last."""
        out = [0]
        for size in self.sizes:
            out.append(out[-1] + size)
        return tuple(out)

    @property
    def size(self) -> int:
        return sum(self.sizes)

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> "Layout":
        return cls(tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @classmethod
    def flat(cls, size: int) -> "Layout":
        """One unnamed vector."""
        return cls(("theta",), ((size,),))

    def unflatten(self, vector: Tensor) -> dict[str, Tensor]:
        """Views into `vector`, by name."""
        at = self.offsets
        return {
            name: vector[at[i] : at[i + 1]].view(shape)
            for i, (name, shape) in enumerate(zip(self.names, self.shapes, strict=True))
        }

    def by_name(self, value: Callable[[str], float], like: Tensor) -> Tensor:
        """A number for each parameter, by the name of its tensor alone: wherever shards cut, a
        parameter's is the same."""
        return torch.cat(
            [
                like.new_full((size,), value(name))
                for name, size in zip(self.names, self.sizes, strict=True)
            ]
        )


@dataclass(frozen=True)
class Sharding:
    """How the flat vector is divided over M servers: shard s holds [bounds[s], bounds[s+1])."""

    bounds: tuple[int, ...]
    layouts: tuple[Layout, ...]
    whole_tensors: bool

    @property
    def shards(self) -> int:
        return len(self.layouts)

    def slice(self, shard: int) -> slice:
        return slice(self.bounds[shard], self.bounds[shard + 1])

    @classmethod
    def divide(
        cls, layout: Layout, shards: int = 1, by: Literal["slice", "tensor"] = "slice"
    ) -> "Sharding":
        """Balanced slices of the flat vector, or consecutive whole tensors as even as they go."""
        if by not in ("slice", "tensor"):
            raise ValueError(f"shard_by must be 'slice' or 'tensor', got {by!r}")
        units = len(layout.names) if by == "tensor" else layout.size
        if not 1 <= shards <= units:
            what = "tensors" if by == "tensor" else "parameters"
            raise ValueError(
                f"shards = {shards}, but the model has {units} {what}: "
                f"choose between 1 and {units} shards"
            )
        if by == "slice":
            bounds = tuple(round(s * layout.size / shards) for s in range(shards + 1))
        else:
            bounds = _tensor_bounds(layout, shards)
        layouts = tuple(_cut(layout, a, b) for a, b in itertools.pairwise(bounds))
        whole = set(bounds) <= set(layout.offsets)
        return cls(bounds, layouts, whole)


def _tensor_bounds(layout: Layout, shards: int) -> tuple[int, ...]:
    """Cut after the tensor that comes nearest to each even share, leaving one for every shard."""
    offsets, count = layout.offsets, len(layout.names)
    cuts = [0]
    for s in range(1, shards):
        target = s * layout.size / shards
        low, high = cuts[-1] + 1, count - (shards - s)
        cuts.append(min(range(low, high + 1), key=lambda i: abs(offsets[i] - target)))
    return tuple(offsets[i] for i in [*cuts, count])


def _cut(layout: Layout, start: int, stop: int) -> Layout:
    """The layout of a slice; a tensor that is cut becomes a flat piece of the same name."""
    names, shapes = [], []
    at = layout.offsets
    for i, name in enumerate(layout.names):
        a, b = max(at[i], start), min(at[i + 1], stop)
        if a < b:
            names.append(name)
            shapes.append(layout.shapes[i] if (a, b) == (at[i], at[i + 1]) else (b - a,))
    return Layout(tuple(names), tuple(shapes))


def flatten(tensors: Mapping[str, Tensor]) -> Tensor:
    """One flat copy of the tensors, in order."""
    return torch.cat([t.detach().reshape(-1) for t in tensors.values()])
