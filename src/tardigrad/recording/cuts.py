"""Cuts: everything a run needs to go on from one moment, one folder each.

A cut counts once its `cut.json` is there, which is written last, and as long as the logs reach the
places that it was made at. Logs are synced before a cut is written, so that no cut is ahead of them
unless they were lost. The newest two are kept.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from torch import Tensor

from tardigrad.engine.checkpoint import checkpoint_bytes, checkpoint_from_bytes
from tardigrad.recording.disk import Disk
from tardigrad.recording.gradients import WholeGradient
from tardigrad.recording.kept_states import KeptState, states_bytes
from tardigrad.recording.shard_logs import ShardStory

KEEP = 2


class CutPlace(NamedTuple):
    """Where a shard was: so many bytes into the log of this process."""

    epoch: int
    size: int


class FoundCut(NamedTuple):
    names: list[str]
    """The files, by shard;"""
    positions: list[int]
    """and how many entries each shard had behind it."""
    unsent: str | None = None
    """The file of what workers held to be merged into later pushes, if they held anything;"""
    states: str | None = None
    """and of what their work keeps from row to row."""


def cut_name(number: int, shard: int, epoch: int) -> str:
    """The epoch tells two drivers' cuts apart, should both give theirs the same number."""
    return f"cuts/{number:06d}/shard-{shard}.{epoch:08d}.safetensors"


def finish_cut(
    disk: Disk,
    number: int,
    places: Sequence[CutPlace],
    unsent: Sequence[Mapping[int, WholeGradient]] = (),
    states: Sequence[KeptState | None] = (),
) -> None:
    """unsent: by row, what each worker holds to be merged into a later push. It cannot be computed
    again from the cut, which has not the versions that it was computed at; nor can `states`, what
    workers keep for themselves (None: nothing yet)."""
    about: dict[str, object] = {"places": places}
    parts: dict[str, bytes] = {}
    if any(unsent):
        parts["unsent"] = _unsent_bytes(unsent)
    kept = [one for one in states if one is not None]
    if kept:
        parts["states"] = states_bytes(kept)
    for what, data in parts.items():
        # The epoch tells two drivers' cuts apart here too.
        name = about[what] = f"cuts/{number:06d}/{what}.{max(places).epoch:08d}.safetensors"
        disk.replace(name, data)
    disk.create(_about(number), json.dumps(about).encode())
    for old in cut_numbers(disk)[:-KEEP]:
        disk.remove(_about(old))
        disk.remove(f"cuts/{old:06d}/")


def next_cut(disk: Disk) -> int:
    """A number that no cut has had, whole or not."""
    names = disk.names("cuts/")
    return 1 + max((int(name.split("/")[1]) for name in names), default=-1)


def newest_cut(
    disk: Disk,
    stories: Sequence[ShardStory],
    fits: Callable[[FoundCut], bool] = lambda cut: True,
) -> FoundCut | None:
    """The newest cut that the logs reach, and that `fits`."""
    for number in reversed(cut_numbers(disk)):
        data = disk.read(_about(number))
        if data is None:  # another driver has just removed it, because it has newer ones
            continue
        about = json.loads(data)
        places = [CutPlace(*place) for place in about["places"]]
        positions = [
            story.position(place.epoch, place.size)
            for story, place in zip(stories, places, strict=True)
        ]
        known = [position for position in positions if position is not None]
        if len(known) == len(stories):
            names = [cut_name(number, shard, place.epoch) for shard, place in enumerate(places)]
            found = FoundCut(names, known, about.get("unsent"), about.get("states"))
            if fits(found):
                return found
    return None


def cut_numbers(disk: Disk) -> list[int]:
    """Whole ones, oldest first."""
    return [int(name.split("/")[1]) for name in disk.names("cuts/") if name.endswith("/cut.json")]


def read_part(disk: Disk, name: str) -> bytes:
    """A file of a cut."""
    data = disk.read(name)
    if data is None:
        raise ValueError(f"{name} is missing, although its cut is whole")
    return data


def read_unsent(disk: Disk, name: str) -> dict[int, WholeGradient]:
    tensors, facts = checkpoint_from_bytes(read_part(disk, name), name)
    return {
        int(row): WholeGradient(
            tensors[f"{row}.grad"], tuple(tensors[f"{row}.buffers.{i}"] for i in range(count))
        )
        for row, count in facts["buffers"].items()
    }


def _unsent_bytes(unsent: Sequence[Mapping[int, WholeGradient]]) -> bytes:
    tensors: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    for of_worker in unsent:
        for row, gradient in of_worker.items():
            tensors[f"{row}.grad"] = gradient.grad
            tensors |= {f"{row}.buffers.{i}": b for i, b in enumerate(gradient.buffers)}
            counts[str(row)] = len(gradient.buffers)
    return checkpoint_bytes(tensors, {"buffers": counts})


def _about(number: int) -> str:
    return f"cuts/{number:06d}/cut.json"
