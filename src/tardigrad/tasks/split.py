"""The samples a module is trained and measured on."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.tasks.reading import is_dataset, read
from tardigrad.tasks.samples import Samples, as_samples, mapped, tensors_in
from tardigrad.tasks.task import SPLITS


@dataclass(frozen=True)
class Split:
    """Inputs and targets, one sample a row.

    Each is a tensor, an array, or several of them in a tuple or a dict (`tasks.samples`); targets
    may be left out where the model makes its own loss of its inputs.
    """

    inputs: Samples
    targets: Samples = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", as_samples(self.inputs, "inputs"))
        if self.targets is not None:
            object.__setattr__(self, "targets", as_samples(self.targets, "targets"))
        for tensor in (*tensors_in(self.inputs), *tensors_in(self.targets)):
            require(tensor.dim() > 0, "a Split needs samples in rows, and a single number has none")
        counts = {len(tensor) for tensor in tensors_in(self.inputs)}
        require(len(counts) == 1, f"the inputs have {sorted(counts)} samples: each needs as many")
        for tensor in tensors_in(self.targets):
            if len(tensor) != len(self):
                raise ValueError(
                    f"a Split needs one target per input, got {len(self)} inputs and "
                    f"{len(tensor)} targets"
                )
        if len(self) == 0:
            raise ValueError("a Split needs at least one sample; use None for an absent split")

    def __len__(self) -> int:
        return len(tensors_in(self.inputs)[0])

    @property
    def is_plain(self) -> bool:
        """Whether inputs and targets are one tensor each."""
        return isinstance(self.inputs, Tensor) and isinstance(self.targets, Tensor)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Split":
        """On `device`, what is floating-point as `dtype`; integers (pixels, tokens) stay so."""

        def moved(tensor: Tensor) -> Tensor:
            return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)

        return Split(mapped(moved, self.inputs), mapped(moved, self.targets))

    @classmethod
    def of(cls, data: Any) -> "Split":
        """Of what people have: (inputs, …, targets), a dict of inputs, a map-style Dataset."""
        if isinstance(data, Split):
            return data
        if is_dataset(data):
            return cls(*read(data))
        if isinstance(data, tuple) and len(data) > 1:
            require(
                not any(is_dataset(part) and not isinstance(part, list) for part in data),
                "a tuple is (inputs, targets): several Datasets are Data(train, validation, test)",
            )
            *first, last = data
            return cls(first[0] if len(first) == 1 else tuple(first), last)
        return cls(data)


@dataclass(frozen=True)
class Data:
    """What is learned from, and what it is measured on (None where there is no such set).

    Each is a Split, or what `Split.of` makes one of: a Dataset is read here.
    """

    train: Split
    validation: Split | None = None
    test: Split | None = None

    def __post_init__(self) -> None:
        for name in SPLITS:
            given = getattr(self, name)
            if given is not None or name == "train":
                object.__setattr__(self, name, Split.of(given))

    @classmethod
    def of(cls, train: Any, validation: Any = None, test: Any = None) -> "Data":
        """Of what people have (`Split.of`)."""
        return train if isinstance(train, Data) else cls(train, validation, test)

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of those that it has."""
        return tuple(name for name in SPLITS if getattr(self, name) is not None)

    def split(self, name: str) -> Split | None:
        if name not in SPLITS:
            raise ValueError(f"split must be 'train', 'validation' or 'test', got {name!r}")
        found: Split | None = getattr(self, name)
        return found

    def to(self, device: torch.device, dtype: torch.dtype) -> "Data":
        validation = None if self.validation is None else self.validation.to(device, dtype)
        test = None if self.test is None else self.test.to(device, dtype)
        return Data(self.train.to(device, dtype), validation, test)
