"""Cuts: everything a run needs to go on from one moment, one folder each.

A cut counts once its `cut.json` is there, which is written last. The newest two are kept.
"""

import json
import os
import shutil
from pathlib import Path
from typing import NamedTuple

KEEP = 2


class Cut(NamedTuple):
    number: int
    folder: Path


def cut_folder(folder: Path, number: int) -> Path:
    return folder / f"cut-{number:06d}"


def cut_file(folder: Path, number: int, shard: int) -> Path:
    return cut_folder(folder, number) / f"shard-{shard}.safetensors"


def begin_cut(folder: Path, number: int) -> None:
    cut_folder(folder, number).mkdir(parents=True, exist_ok=True)


def finish_cut(folder: Path, number: int, events: list[int]) -> None:
    path = cut_folder(folder, number) / "cut.json"
    partial = path.with_suffix(".partial")
    with open(partial, "w") as file:
        json.dump({"events": events}, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
    for old in cuts(folder)[:-KEEP]:
        shutil.rmtree(old.folder)


def cuts(folder: Path) -> list[Cut]:
    """The whole ones, oldest first."""
    found = sorted(folder.glob("cut-*/cut.json"))
    return [Cut(int(path.parent.name.removeprefix("cut-")), path.parent) for path in found]
