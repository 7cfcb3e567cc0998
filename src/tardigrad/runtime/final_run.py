"""A run's numbers at its end, saved before anything that can fail."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.engine.checkpoint import load_checkpoint, save_checkpoint
from tardigrad.engine.observer import Ended
from tardigrad.runtime.shard_process import FinalShard


class FinalRun(NamedTuple):
    theta: Tensor
    average: Tensor | None
    buffers: tuple[Tensor, ...]
    digests: list[str]
    """Of each shard's θ."""
    versions: list[int]
    """Of each shard."""
    ended: Ended

    @staticmethod
    def of(finals: Sequence[FinalShard], ended: Ended | None) -> "FinalRun":
        """ended: what ended it before its updates were made."""
        averages = [final.average for final in finals if final.average is not None]
        versions = [final.version for final in finals]
        return FinalRun(
            torch.cat([final.theta for final in finals]),
            torch.cat(averages) if len(averages) == len(finals) else None,
            finals[0].buffers,
            [final.digest for final in finals],
            versions,
            ended._replace(updates=min(versions)) if ended else Ended.all_made(min(versions)),
        )

    def save(self, folder: Path, epoch: int) -> None:
        """epoch: the last one of the driver that saves it; another driver has others."""
        tensors = {"theta": self.theta}
        tensors |= {f"buffers.{i}": buffer for i, buffer in enumerate(self.buffers)}
        if self.average is not None:
            tensors["average"] = self.average
        facts = {"digests": self.digests, "versions": self.versions, "ended": list(self.ended)}
        save_checkpoint(_path(folder, epoch), tensors, facts)

    @staticmethod
    def load(folder: Path, epoch: int, updates: int) -> "FinalRun":
        """updates: those that every run made before it was noted how many."""
        tensors, facts = load_checkpoint(_path(folder, epoch))
        buffers = tuple(
            tensors[f"buffers.{i}"] for i in range(len(tensors)) if f"buffers.{i}" in tensors
        )
        digests = facts["digests"]
        versions = facts.get("versions", [updates] * len(digests))
        ended = Ended(*facts["ended"]) if "ended" in facts else Ended.all_made(updates)
        average = tensors.get("average")
        return FinalRun(tensors["theta"], average, buffers, digests, versions, ended)


def _path(folder: Path, epoch: int) -> Path:
    return folder / f"final-{epoch:08d}.safetensors"
