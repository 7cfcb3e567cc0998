"""Samples as people have them: one tensor, or several in a tuple or by name; one sample a row."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tardigrad.core.checks import require

Samples = Any
"""A tensor, a tuple of them, or a dict of them by the names of the forward pass's parameters. The
same index is the same sample in each."""


def as_samples(value: Any, what: str) -> Samples:
    """Tensors of what may also be arrays or lists; `what` it is called in messages."""
    if isinstance(value, Mapping):
        require(
            bool(value) and all(isinstance(name, str) for name in value),
            f"{what} in a dict are named as the model's forward takes them, got {list(value)}",
        )
        return {str(name): _tensor(item, f"{what}[{name!r}]") for name, item in value.items()}
    if isinstance(value, tuple):
        require(bool(value), f"{what} are an empty tuple: give at least one tensor")
        return tuple(_tensor(item, f"{what}[{i}]") for i, item in enumerate(value))
    return _tensor(value, what)


def _tensor(value: Any, what: str) -> Tensor:
    if isinstance(value, Tensor):
        return value.detach() if value.requires_grad else value
    try:
        array = np.asarray(value) if not isinstance(value, list | int | float | bool) else value
        if isinstance(array, np.ndarray):
            if array.dtype.kind not in "biuf":
                raise TypeError(array.dtype)
            return torch.from_numpy(_as_torch_has_it(array))
        return torch.as_tensor(array)
    except (TypeError, ValueError, RuntimeError):
        kind = type(value).__name__
        hint = "a tokenizer makes numbers of text" if kind == "str" else "give a tensor or an array"
        raise ValueError(f"{what} must be numbers, but there is a {kind}: {hint}") from None


def _as_torch_has_it(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in this machine's order of bytes, none longer than 8, no strides backwards;
    the array itself where it is so."""
    longest = array.dtype.itemsize > 8
    array = array.astype(np.float64 if longest else array.dtype.newbyteorder("="), copy=False)
    forwards = all(stride >= 0 for stride in array.strides)
    return array if forwards and array.flags.writeable else array.copy()


def tensors_in(samples: Samples) -> list[Tensor]:
    """The tensors, in order."""
    if samples is None:
        return []
    if isinstance(samples, Tensor):
        return [samples]
    return list(samples.values()) if isinstance(samples, Mapping) else list(samples)


def mapped(change: Callable[..., Tensor], *samples: Samples) -> Samples:
    """The same structure, each tensor changed; of several, the tensors in one place together."""
    first = samples[0]
    if first is None:
        return None
    if isinstance(first, Tensor):
        return change(*samples)
    if isinstance(first, Mapping):
        return {name: change(*(s[name] for s in samples)) for name in first}
    return tuple(change(*parts) for parts in zip(*samples, strict=True))


def take(samples: Samples, chosen: Tensor | slice) -> Samples:
    """Some of the samples, copied."""
    if isinstance(chosen, slice):
        return mapped(lambda t: t[chosen].clone(), samples)
    return mapped(lambda t: t[chosen], samples)


def same_structure(some: Samples, others: Samples) -> bool:
    """Whether both hold tensors in the same places."""
    if isinstance(some, Mapping) and isinstance(others, Mapping):
        return set(some) == set(others)
    return type(some) is type(others) and len(tensors_in(some)) == len(tensors_in(others))


def labels_of(targets: Samples) -> npt.NDArray[np.int64] | None:
    """One whole number a sample; None where targets are something else."""
    if not isinstance(targets, Tensor) or targets.dim() != 1 or targets.is_floating_point():
        return None
    return targets.to("cpu", torch.int64).numpy()
