"""The versions that workers still read: each stored once, freed at its last read."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.arrays import Ints
from tardigrad.scheduling import Schedule


class Versions:
    """What each shard has sent, by version, for as long as a gradient to come was read from it."""

    def __init__(self, schedule: Schedule, wanted: Ints) -> None:
        """`wanted`: the rows whose gradients will be computed."""
        self._reads: list[dict[int, int]] = []
        for shard in range(schedule.shards):
            versions, counts = np.unique(schedule.read[wanted, shard], return_counts=True)
            self._reads.append(dict(zip(versions.tolist(), counts.tolist(), strict=True)))
        self._held: list[dict[int, Tensor]] = [{} for _ in range(schedule.shards)]

    def put(self, shard: int, version: int, sent: Tensor) -> None:
        """Keep a version if anyone is going to read it."""
        if self._reads[shard].get(version):
            self._held[shard][version] = sent

    def view(self, read: list[int]) -> Tensor:
        """The composite of these versions, one per shard; counts as one read of each."""
        parts = [self._take(shard, version) for shard, version in enumerate(read)]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _take(self, shard: int, version: int) -> Tensor:
        sent = self._held[shard][version]
        self._reads[shard][version] -= 1
        if not self._reads[shard][version]:
            del self._held[shard][version], self._reads[shard][version]
        return sent

    @property
    def held(self) -> int:
        """Versions alive now, all shards together."""
        return sum(len(held) for held in self._held)

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"versions.{shard}.{version}": tensor
            for shard, held in enumerate(self._held)
            for version, tensor in held.items()
        }

    def restore(
        self, tensors: Mapping[str, Tensor], read_rows: Mapping[tuple[int, int], int]
    ) -> None:
        """Put the saved versions back, and take off the reads that were made before the save."""
        for (shard, version), reads in read_rows.items():
            self._reads[shard][version] -= reads
            if not self._reads[shard][version]:
                del self._reads[shard][version]
        self._held = [{} for _ in self._held]
        for name, tensor in tensors.items():
            kind, *where = name.split(".")
            if kind == "versions":
                self._held[int(where[0])][int(where[1])] = tensor


def most_versions(schedule: Schedule, extended: bool = False) -> list[int]:
    """How many versions of each shard are held at once by who computes a gradient when it is first
    applied: each from the update that makes it to the last that applies a gradient computed at it
    (rules compare the two), or to when such a gradient is computed for another shard.

    extended: what `unsettled` gradients read is held to the end.
    """
    coming = np.nonzero(unsettled(schedule))[0] if extended else np.empty(0, dtype=np.int64)
    sizes = np.diff(schedule.group_start)
    group_of = np.repeat(np.arange(schedule.groups), sizes)
    rows, first = np.unique(schedule.group_rows, return_index=True)
    out = []
    for shard in range(schedule.shards):
        mine = schedule.group_shard == shard
        made = np.concatenate([[0], np.cumsum(mine)])  # updates before each group
        here = mine[group_of]
        last = np.full(made[-1] + 1, -1, dtype=np.int64)
        np.maximum.at(last, schedule.read[rows, shard], made[group_of[first]])
        np.maximum.at(last, schedule.read[schedule.group_rows[here], shard], made[group_of[here]])
        last[schedule.read[coming, shard]] = made[-1]
        read = np.nonzero(last >= 0)[0]
        # Update u reads before it makes version u + 1, which may take the place of what it read.
        change = np.zeros(len(last) + 1, dtype=np.int64)
        np.add.at(change, read, 1)
        np.add.at(change, np.maximum(last[read], read) + 1, -1)
        out.append(int(np.cumsum(change).max()))
    return out


def unsettled(schedule: Schedule) -> Ints:
    """Of each row, at how many shards it is still to be applied when the schedule ends.

    Nobody executes that; but a run that is extended goes on from there, and needs their views. Of a
    worker's rows only those behind the last one that came anywhere: the others never will.
    """
    came = np.concatenate([schedule.group_rows, schedule.drop_row])
    sizes = np.diff(schedule.group_start)
    where = np.concatenate([np.repeat(schedule.group_shard, sizes), schedule.drop_shard])
    pairs = np.unique(came * schedule.shards + where)
    missing = schedule.shards - np.bincount(pairs // schedule.shards, minlength=schedule.rows)
    last = np.full(schedule.workers, -1, dtype=np.int64)
    np.maximum.at(last, schedule.worker[came], came)
    behind = np.arange(schedule.rows) >= last[schedule.worker]
    return np.where(behind, missing, 0)
