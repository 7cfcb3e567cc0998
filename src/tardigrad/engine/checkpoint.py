"""Checkpoints: one safetensors file that holds tensors and, as JSON, everything else.

Written beside and renamed, so that a kill at any moment leaves the last whole one; never pickle.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load, save, save_file
from torch import Tensor

FORMAT = "tardigrad-checkpoint-1"


def save_checkpoint(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    # safetensors refuses tensors that share memory, and a sent version often is θ itself.
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    try:
        save_file(copies, partial, metadata={"format": FORMAT, "facts": json.dumps(facts)})
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written: {error}") from error
    with open(partial, "rb") as file:
        os.fsync(file.fileno())
    os.replace(partial, path)


def checkpoint_bytes(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> bytes:
    """What `save_checkpoint` writes."""
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}
    data: bytes = save(copies, metadata={"format": FORMAT, "facts": json.dumps(facts)})
    return data


def checkpoint_from_bytes(data: bytes, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        length = int.from_bytes(data[:8], "little")
        metadata = json.loads(data[8 : 8 + length]).get("__metadata__", {})
        # Copied to where torch aligns them, see `load_checkpoint`.
        tensors = {key: tensor.clone() for key, tensor in load(data).items()}
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{name} is not a whole checkpoint: {error}") from error
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{name} is not a {FORMAT} file")
    return tensors, json.loads(metadata["facts"])


def load_checkpoint(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with _opened(path) as file:
        # Copied to where torch aligns them: the file packs them one behind the other, and where a
        # vector lies changes the bits of a product with it.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
        return tensors, _facts(path, file)


def load_facts(path: Path) -> dict[str, Any]:
    """A checkpoint's facts without its tensors."""
    with _opened(path) as file:
        return _facts(path, file)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, FileNotFoundError) as error:
        raise ValueError(f"{path} is not a whole checkpoint: {error}") from error


def _facts(path: Path, file: Any) -> dict[str, Any]:
    metadata = file.metadata() or {}
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a {FORMAT} file")
    facts: dict[str, Any] = json.loads(metadata["facts"])
    return facts
