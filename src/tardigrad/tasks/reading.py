"""Reading a map-style Dataset into memory, once: every sample is needed again and again."""

import sys
import time
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.tasks.samples import Samples, as_samples, mapped, same_structure, tensors_in

PATIENCE_S = 2.0
"""Seconds after which, and between which, it is told how far the reading has come."""


def is_dataset(value: Any) -> bool:
    """Whether it is to be read sample by sample: a Dataset, or a list of samples."""
    known = isinstance(value, Tensor | Mapping | tuple) or hasattr(value, "__array__")
    return not known and (hasattr(value, "__getitem__") or hasattr(value, "__iter__"))


def read(dataset: Any) -> tuple[Samples, Samples]:
    """The inputs and targets of all its samples.

    A sample is (input, target), (input, …, target), a single input, or a dict of inputs by name.
    What a Dataset draws at random is drawn once.
    """
    name = type(dataset).__name__
    count = _length(dataset, name)
    whole: Samples = None
    begin = told = time.monotonic()
    for i in range(count):
        sample = _parts(dataset[i], f"{name}[{i}]")
        if whole is None:
            first = sample
            whole = tuple(mapped(lambda t: t.new_empty((count, *t.shape)), part) for part in sample)
        _check_alike(sample, first, f"{name}[{i}]", name)
        for rows, row in zip(_all(whole), _all(sample), strict=True):
            rows[i] = row
        now = time.monotonic()
        if now - told >= PATIENCE_S:
            told = now
            print(f"reading {name}: {i + 1:,} of {count:,} samples", file=sys.stderr, flush=True)
    if told > begin:
        print(f"read {name} in {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    inputs, targets = whole
    return inputs, targets


def _length(dataset: Any, name: str) -> int:
    require(
        not (hasattr(dataset, "dataset") and hasattr(dataset, "batch_sampler")),
        f"{name} makes batches, which the task does itself: give its .dataset",
    )
    try:
        count = len(dataset)
    except (TypeError, NotImplementedError):
        count = -1
    require(
        count >= 0 and hasattr(dataset, "__getitem__"),
        f"{name} has no length, or no samples by number, so batches cannot be drawn from it: give "
        "a map-style Dataset (with __len__ and __getitem__), such as list(your_dataset)",
    )
    require(count > 0, f"{name} has no samples; use None for an absent split")
    return count


def _parts(sample: Any, where: str) -> tuple[Samples, Samples]:
    """Inputs and targets of one sample."""
    targets: Samples = None
    if isinstance(sample, tuple | list) and len(sample) > 1:
        *first, last = sample
        targets = as_samples(last, f"the target of {where}")
        sample = first[0] if len(first) == 1 else tuple(first)
    elif isinstance(sample, tuple | list) and len(sample) == 1:
        (sample,) = sample
    return as_samples(sample, f"the input of {where}"), targets


def _check_alike(
    sample: tuple[Samples, ...], first: tuple[Samples, ...], where: str, name: str
) -> None:
    for part, like, what in zip(sample, first, ("input", "target"), strict=True):
        require(
            same_structure(part, like),
            f"the {what} of {where} has {_outline(part)}, and that of {name}[0] {_outline(like)}: "
            "all samples must have the same parts",
        )
    for tensor, like in zip(_all(sample), _all(first), strict=True):
        require(
            tensor.shape == like.shape,
            f"{where} has the shape {tuple(tensor.shape)}, and {name}[0] {tuple(like.shape)}: "
            "batches need one shape, so pad or crop the samples (a tokenizer does with "
            "padding='max_length')",
        )
        require(
            tensor.dtype == like.dtype,
            f"{where} is {tensor.dtype}, and {name}[0] {like.dtype}: all samples must be of one "
            "type",
        )


def _all(parts: tuple[Samples, ...]) -> list[Tensor]:
    return [tensor for part in parts for tensor in tensors_in(part)]


def _outline(samples: Samples) -> str:
    if isinstance(samples, Mapping):
        return f"the keys {sorted(samples)}"
    return f"{len(tensors_in(samples))} tensors"
