"""A recorded run's `record.json`: what it was, and what its bits depend on."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tardigrad.core.checks import require
from tardigrad.engine.result_files import RECORD, named_if_damaged
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.epochs import Length, finished_with, length
from tardigrad.recording.facts import HARDWARE, check_facts

FORMAT = "tardigrad-ray-2"
OLD_FORMAT = "tardigrad-ray-1"


def begin_record(folder: Path, plain: dict[str, Any], began_s: float) -> None:
    """Write what a run starts from."""
    require(
        not (folder / RECORD).exists(),
        f"{folder} already holds a run on Ray: go on with it (resume), or write elsewhere",
    )
    folder.mkdir(parents=True, exist_ok=True)
    write_record(folder, {**plain, "began_s": began_s, "finished": False})


class GoingOn(NamedTuple):
    """How a folder's run is gone on with."""

    began_s: float
    """Its time 0."""
    length: Length
    """As it is to be."""
    extends: bool
    """Whether it becomes longer, or goes on although a stop has ended it."""


def resume_record(folder: Path, plain: dict[str, Any]) -> GoingOn:
    """Check that the folder's run is the one to go on with. It may be given more updates."""
    recorded = read_record(folder)
    require(
        recorded["format"] == FORMAT,
        f"the run in {folder} was begun by tardigrad 0.1, whose logs this version cannot go on "
        "with: finish it with 0.1, or start again in a new folder",
    )
    given = json.loads(json.dumps(plain))
    free = ("facts", "updates")
    different = [n for n in plain if n not in free and recorded.get(n) != given[n]]
    # An epoch that extends a run is taken before its record is written.
    disk, asked = FolderDisk(folder), given["updates"]
    before, first = length(disk, recorded["updates"])
    over = recorded["finished"] and finished_with(disk) is not None
    stopped = recorded.get("ended_by", "updates") != "updates"
    require(
        not over or stopped or asked != before,
        f"the run in {folder} has finished: there is nothing to do, unless it gets more updates "
        f"than {before}",
    )
    require(
        asked >= before,
        f"{folder} holds a run of {before} updates, which cannot be made one of {asked}: give "
        "more to extend it, or start another in a new folder",
    )
    require(
        not different,
        f"{folder} holds a run of another spec, so it cannot be resumed with this one: "
        f"{', '.join(different)} {'differs' if len(different) == 1 else 'differ'}",
    )
    check_facts(
        recorded["facts"],
        given["facts"],
        "Go on with it where these are the same, or start in a new folder",
        but=HARDWARE,  # told as its processes begin: a run is not lost with a kind of machine
    )
    return GoingOn(float(recorded["began_s"]), Length(asked, first), over or asked > before)


def read_record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    require(path.is_file(), f"{folder} holds no run on Ray (it has no {RECORD})")
    with named_if_damaged(path):
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        require(isinstance(record, dict), "it holds no table")
    require(record.get("format") in (FORMAT, OLD_FORMAT), f"{path} is not a {FORMAT} file")
    return record


def write_record(folder: Path, data: dict[str, Any]) -> None:
    path = folder / RECORD
    partial = path.with_name(path.name + ".partial")
    with open(partial, "w", encoding="utf-8") as file:
        file.write(json.dumps(data, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
