"""A run's numbers at its end, saved before anything that can fail."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.engine.checkpoint import load_checkpoint, save_checkpoint
from tardigrad.runtime.shard_process import FinalShard


class FinalRun(NamedTuple):
    theta: Tensor
    average: Tensor | None
    buffers: tuple[Tensor, ...]
    digests: list[str]
    """Of each shard's θ."""

    @staticmethod
    def of(finals: Sequence[FinalShard]) -> "FinalRun":
        averages = [final.average for final in finals if final.average is not None]
        return FinalRun(
            torch.cat([final.theta for final in finals]),
            torch.cat(averages) if len(averages) == len(finals) else None,
            finals[0].buffers,
            [final.digest for final in finals],
        )

    def save(self, folder: Path, epoch: int) -> None:
        """epoch: the last one of the driver that saves it; another driver has others."""
        tensors = {"theta": self.theta}
        tensors |= {f"buffers.{i}": buffer for i, buffer in enumerate(self.buffers)}
        if self.average is not None:
            tensors["average"] = self.average
        save_checkpoint(_path(folder, epoch), tensors, {"digests": self.digests})

    @staticmethod
    def load(folder: Path, epoch: int) -> "FinalRun":
        tensors, facts = load_checkpoint(_path(folder, epoch))
        buffers = tuple(
            tensors[f"buffers.{i}"] for i in range(len(tensors)) if f"buffers.{i}" in tensors
        )
        return FinalRun(tensors["theta"], tensors.get("average"), buffers, facts["digests"])


def _path(folder: Path, epoch: int) -> Path:
    return folder / f"final-{epoch:08d}.safetensors"
