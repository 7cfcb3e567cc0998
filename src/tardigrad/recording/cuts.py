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


class FoundCut(NamedTuple):
    names: list[str]
    """The files, by shard;"""
    positions: list[int]
    """and how many entries each shard had behind it."""


def cut_name(number: int, shard: int, epoch: int) -> str:
    """The epoch tells two drivers' cuts apart, should both give theirs the same number."""
    return f"cuts/{number:06d}/shard-{shard}.{epoch:08d}.safetensors"


def finish_cut(disk: Disk, number: int, places: Sequence[CutPlace]) -> None:
    disk.create(_about(number), json.dumps({"places": places}).encode())
    for old in cut_numbers(disk)[:-KEEP]:
        disk.remove(_about(old))
        disk.remove(f"cuts/{old:06d}/")


def next_cut(disk: Disk) -> int:
    """A number that no cut has had, whole or not."""
    names = disk.names("cuts/")
    return 1 + max((int(name.split("/")[1]) for name in names), default=-1)


def newest_cut(disk: Disk, stories: Sequence[ShardStory]) -> FoundCut | None:
    """The newest cut that the logs reach."""
    for number in reversed(cut_numbers(disk)):
        data = disk.read(_about(number))
        if data is None:  # another driver has just removed it, because it has newer ones
            continue
        places = [CutPlace(*place) for place in json.loads(data)["places"]]
        positions = [
            story.position(place.epoch, place.size)
            for story, place in zip(stories, places, strict=True)
        ]
        known = [position for position in positions if position is not None]
        if len(known) == len(stories):
            names = [cut_name(number, shard, place.epoch) for shard, place in enumerate(places)]
            return FoundCut(names, known)
    return None


def cut_numbers(disk: Disk) -> list[int]:
    """Whole ones, oldest first."""
    return [int(name.split("/")[1]) for name in disk.names("cuts/") if name.endswith("/cut.json")]


def _about(number: int) -> str:
    return f"cuts/{number:06d}/cut.json"
