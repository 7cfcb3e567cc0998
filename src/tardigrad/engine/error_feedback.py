"""What each worker's codec has not sent yet."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from tardigrad.core.layout import Sharding
from tardigrad.links import Codec, SliceOf, decode, send


def decoded(codec: Codec, values: Tensor, of: SliceOf) -> Tensor:
    """One slice, as the shard sees it, where nothing is fed back."""
    array = values.numpy(force=True)
    seen = decode(codec, codec.encode(array, of), len(array), array.dtype)
    return torch.from_numpy(seen).to(values.device)


class ErrorFeedback:
    """Each worker's error e, over all shards' slices; zero where it begins.

    p = e + g; the shard sees C(p) and e ← p − C(p), or e ← p where a gate holds the slice back.
    """

    def __init__(self, codec: Codec, sharding: Sharding) -> None:
        self._codec = codec
        self._sharding = sharding
        self._errors: dict[int, Tensor] = {}

    def begin_anew(self, worker: int) -> None:
        self._errors.pop(worker, None)

    def compensated(self, worker: int, grad: Tensor) -> Tensor:
        """p of all shards."""
        error = self._errors.get(worker)
        return grad if error is None else error + grad

    def push(self, worker: int, step: int, compensated: Tensor, held: Sequence[bool]) -> Tensor:
        """What shards see of p, slice by slice; those that are held back see nothing of it."""
        seen, error = torch.zeros_like(compensated), compensated.clone()
        for shard, stays in enumerate(held):
            if stays:
                continue
            part = self._sharding.slice(shard)
            values = compensated[part].numpy(force=True)
            sent = send(self._codec, values, SliceOf(worker, step, shard))
            seen[part] = torch.from_numpy(sent.decoded)
            error[part] = torch.from_numpy(sent.error)
        self._errors[worker] = error
        return seen

    def tensors(self) -> dict[str, Tensor]:
        return {f"error.{worker}": error for worker, error in self._errors.items()}

    def facts(self) -> dict[str, Any]:
        return {"errors": list(self._errors)}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        self._errors = {worker: tensors[f"error.{worker}"] for worker in facts["errors"]}
