"""Nested NamedTuples of tensors as flat dictionaries, so that states can be saved by name; and
whether numbers are finite."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def named(tree: Any, prefix: str) -> dict[str, Tensor]:
    """Every tensor under its dotted name: `prefix.optimizer.velocity.0`."""
    if isinstance(tree, Tensor):
        return {prefix: tree}
    children = _children(tree)
    fields = getattr(tree, "_fields", range(len(children)))
    out: dict[str, Tensor] = {}
    for name, child in zip(fields, children, strict=True):
        out |= named(child, f"{prefix}.{name}")
    return out


def leaves(tree: Any) -> list[Tensor]:
    """The same tensors in the same order, for whoever cannot wait until names are made."""
    if isinstance(tree, Tensor):
        return [tree]
    found: list[Tensor] = []
    for child in _children(tree):
        if isinstance(child, Tensor):
            found.append(child)
        else:
            found += leaves(child)
    return found


def _children(tree: Any) -> Sequence[Any]:
    """Refused are dictionaries, arrays and bare numbers, which could not be saved by name."""
    if isinstance(tree, tuple | list):
        return tree
    raise ValueError(
        f"a state is made of tensors in nested tuples or NamedTuples, got {type(tree).__name__}: "
        "use (tensor, tensor) for it, and torch.tensor(…) for a number"
    )


def rebuilt(template: Any, tensors: Iterable[Tensor]) -> Any:
    """A tree of the template's shape with these `leaves`."""
    return _rebuilt(template, iter(tensors))


def _rebuilt(template: Any, tensors: Iterator[Tensor]) -> Any:
    if isinstance(template, Tensor):
        return next(tensors)
    children = [_rebuilt(child, tensors) for child in template]
    return type(template)(*children) if hasattr(template, "_fields") else tuple(children)


def unshared(tree: Any, other: Tensor) -> Any:
    """The same tree, without a tensor that shares its memory with `other`."""
    memory, tensors = _memory(other), leaves(tree)
    shares = [_overlap(_memory(tensor), memory) for tensor in tensors]
    if not any(shares):
        return tree
    return rebuilt(tree, [t.clone() if s else t for t, s in zip(tensors, shares, strict=True)])


def _memory(tensor: Tensor) -> tuple[int, int]:
    """Where the memory that it is in begins and ends. By NumPy two tensors can be in the same with
    none knowing of the other's beginning."""
    storage = tensor.untyped_storage()
    begin = storage.data_ptr()
    return begin, begin + storage.nbytes()


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def restored(template: Any, tensors: Mapping[str, Tensor], prefix: str) -> Any:
    """A tree of the template's shape with the tensors that `named` gave those names."""
    return rebuilt(template, [tensors[name] for name in named(template, prefix)])


def not_finite(tensor: Tensor) -> float | None:
    """The first NaN or infinity; None where all numbers are finite.

    A finite sum proves that they are; one that overflows proves nothing.
    """
    if math.isfinite(float(tensor.sum())):
        return None
    bad = tensor[~torch.isfinite(tensor)]
    return float(bad[0]) if len(bad) else None
