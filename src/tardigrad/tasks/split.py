"""The tensors a module is trained and measured on."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tardigrad.tasks.task import SPLITS


@dataclass(frozen=True)
class Split:
    """Inputs and targets, one sample a row."""

    inputs: Tensor
    targets: Tensor

    def __post_init__(self) -> None:
        if len(self.inputs) != len(self.targets):
            raise ValueError(
                f"a Split needs one target per input, got {len(self.inputs)} inputs and "
                f"{len(self.targets)} targets"
            )
        if len(self.inputs) == 0:
            raise ValueError("a Split needs at least one sample; use None for an absent split")

    def __len__(self) -> int:
        return len(self.inputs)

    def to(self, device: torch.device, dtype: torch.dtype) -> "Split":
        """On `device`, what is floating-point as `dtype`; integers (pixels, tokens) stay so."""
        return Split(_to(self.inputs, device, dtype), _to(self.targets, device, dtype))


@dataclass(frozen=True)
class Data:
    """What is learned from, and what it is measured on (None where there is no such set)."""

    train: Split
    validation: Split | None = None
    test: Split | None = None

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


def _to(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    return tensor.to(device, dtype) if tensor.is_floating_point() else tensor.to(device)
