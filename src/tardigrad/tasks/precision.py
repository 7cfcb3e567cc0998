"""Where a model is computed, in which numbers, and how its products are rounded."""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch
from torch import nn

from tardigrad.core.computer import computer

Precision = Literal["full", "tf32", "bf16"]

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""What the GPU's products may use; cuBLAS reads it before the first one. Torch takes products for
repeatable only where it is set."""


def check_precision(precision: Precision) -> Precision:
    if precision not in ("full", "tf32", "bf16"):
        raise ValueError(f"precision must be 'full', 'tf32' or 'bf16', got {precision!r}")
    return precision


def device_of(choice: str | torch.device) -> torch.device:
    try:
        device = torch.device(choice)
    except RuntimeError as error:
        raise ValueError(
            f"device = {choice!r} is not one that torch knows: use 'cpu' or 'cuda'"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device = {str(choice)!r}, but torch sees no GPU here: use 'cpu'")
    if device.type == "cuda":
        os.environ.setdefault(WORKSPACE, ":4096:8")
    return device


def dtype_of(choice: str | torch.dtype | None, module: nn.Module | None = None) -> torch.dtype:
    """The dtype of that name; None is what the module has."""
    if choice is None:
        found = {p.dtype for p in module.parameters()} if module is not None else set()
        if len(found) != 1:
            raise ValueError(
                f"module mixes {sorted(map(str, found))}: choose one with dtype='float32'"
            )
        return found.pop()
    dtypes = {"float32": torch.float32, "float64": torch.float64}
    if isinstance(choice, str):
        if choice not in dtypes:
            raise ValueError(f"dtype must be 'float32' or 'float64', got {choice!r}")
        return dtypes[choice]
    return choice


def computed_on(device: torch.device) -> str:
    """The computer and its device, in one line; where two say the same, bits are the same."""
    return computer() if device.type == "cpu" else f"{computer()}, {device_facts(device)}"


def device_facts(device: torch.device) -> str:
    """What the bits of a gradient computed there depend on."""
    if device.type != "cuda":
        return device.type
    name, workspace = torch.cuda.get_device_name(device), os.environ.get(WORKSPACE, "not set")
    cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return f"{name}, CUDA {torch.version.cuda}, cuDNN {cudnn}, {WORKSPACE} {workspace}"


@contextmanager
def products(device: torch.device, precision: Precision) -> Iterator[None]:
    """Products and convolutions on the GPU in the chosen precision, and always the same way,
    whatever the process has set: around the forward and the backward pass."""
    if device.type != "cuda":
        yield
        return
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark)
    matmul.allow_tf32 = cudnn.allow_tf32 = precision == "tf32"
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Around the forward pass: bfloat16 where that is safe, if it is asked for."""
    if precision != "bf16":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)
