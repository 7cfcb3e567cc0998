"""Cuts: everything a run needs to go on from one moment, one folder each.

A cut counts once its `cut.json` is there, which is written last, and as long as the logs reach the
places that it was made at. Logs are synced before a cut is written, so that no cut is ahead of them
unless they were lost. The newest two are kept.
"""

import json
from collections.abc import Sequence
from typing import NamedTuple

from tardigrad.recording.disk import Disk
from tardigrad.recording.shard_logs import ShardStory

KEEP = 2


class CutPlace(NamedTuple):
    """Where a shard was: so many bytes into the log of this process."""

    epoch: int
    size: int


class NewestCut(NamedTuple):
    number: int
    places: list[CutPlace]
    positions: list[int]
    """How many entries each shard's logs had by then."""


def cut_name(number: int, shard: int, epoch: int) -> str:
    """A shard's part; the epoch tells it from what a process that was replaced may yet save."""
    return f"cuts/{number:06d}/shard-{shard}.{epoch:08d}.safetensors"


def finish_cut(disk: Disk, number: int, places: Sequence[CutPlace]) -> None:
    disk.replace(_about(number), json.dumps({"places": places}).encode())
    for old in cut_numbers(disk)[:-KEEP]:
        disk.remove(_about(old))
        disk.remove(f"cuts/{old:06d}/")


def next_cut(disk: Disk) -> int:
    """A number that no cut has had, whole or not."""
    names = disk.names("cuts/")
    return 1 + max((int(name.split("/")[1]) for name in names), default=-1)


def newest_cut(disk: Disk, stories: Sequence[ShardStory]) -> NewestCut | None:
    """The newest one that the logs reach."""
    for number in reversed(cut_numbers(disk)):
        data = disk.read(_about(number))
        places = [CutPlace(*place) for place in json.loads(data)["places"]] if data else []
        positions = [
            story.position(place.epoch, place.size)
            for story, place in zip(stories, places, strict=True)
        ]
        known = [position for position in positions if position is not None]
        if len(known) == len(stories):
            return NewestCut(number, places, known)
    return None


def cut_numbers(disk: Disk) -> list[int]:
    """Whole ones, oldest first."""
    return [int(name.split("/")[1]) for name in disk.names("cuts/") if name.endswith("/cut.json")]


def _about(number: int) -> str:
    return f"cuts/{number:06d}/cut.json"
