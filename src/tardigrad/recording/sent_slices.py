"""What a codec makes of a worker's gradients, slice by slice, and what it has not sent of them.

Each shard's slice has an error of its own, and a worker's pushes come to a shard in the order of
its steps. So an error follows from what came to that shard alone, whatever others have heard.
"""

import torch
from torch import Tensor

from tardigrad.core.layout import Sharding
from tardigrad.links import Codec, Sent, SliceOf, send
from tardigrad.protocol.messages import PushHeader
from tardigrad.recording.setup import RunSetup, WorkerKeeps


def sent_slice(codec: Codec, values: Tensor, push: PushHeader, shard: int) -> Sent:
    return send(codec, values.numpy(), SliceOf(push.worker, push.step, shard))


class SliceErrors:
    """One worker's."""

    def __init__(self, codec: Codec, sharding: Sharding, error: Tensor) -> None:
        self._codec, self._sharding = codec, sharding
        self._error = error.clone()

    @classmethod
    def of(cls, setup: RunSetup, kept: WorkerKeeps) -> "SliceErrors":
        return cls(setup.codec, setup.sharding, kept.error)

    @property
    def error(self) -> Tensor:
        """Of all shards' slices."""
        return self._error.clone()

    def compensated(self, grad: Tensor) -> Tensor:
        """p of all shards."""
        return self._error + grad

    def push(self, push: PushHeader, shard: int, grad: Tensor) -> Sent | None:
        """One shard's slice of p = e + g; None where a gate holds it back."""
        part = self._sharding.slice(shard)
        if push.fresh:
            self._error[part] = 0.0
        compensated = self._error[part] + grad
        if not push.crosses:
            self._error[part] = compensated
            return None
        sent = sent_slice(self._codec, compensated, push, shard)
        self._error[part] = torch.from_numpy(sent.error)
        return sent
