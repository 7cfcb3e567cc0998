"""A recorded run's `record.json`: what it was, and what its bits depend on."""

import json
import os
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.engine.result_files import RECORD
from tardigrad.recording.facts import check_facts

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


def resume_record(folder: Path, plain: dict[str, Any]) -> float:
    """Check that the folder's run is the one to go on with; its time 0."""
    recorded = read_record(folder)
    given = json.loads(json.dumps(plain))
    different = [n for n in plain if n != "facts" and recorded.get(n) != given[n]]
    before, asked = recorded.get("updates"), given.get("updates")
    require(
        different != ["updates"],
        f"{folder} holds {not_longer(before, asked)} updates={before}, start another in a new "
        f"folder, or go on from its model: tg.Run.load({str(folder)!r}, task).module()",
    )
    require(not recorded["finished"], f"the run in {folder} has finished: there is nothing to do")
    require(
        recorded["format"] == FORMAT,
        f"the run in {folder} was begun by tardigrad 0.1, whose logs this version cannot go on "
        "with: finish it with 0.1, or start again in a new folder",
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
    )
    return float(recorded["began_s"])


def not_longer(before: int | None, asked: int | None) -> str:
    """Why a run on Ray keeps its updates: its logs hold what shards decided at the end, such as
    not to apply what still came, and a longer run would have decided otherwise."""
    return (
        f"a run on Ray of {before} updates, whose shards decided by that number when to end: it "
        f"cannot be made one of {asked}. Use"
    )


def read_record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    require(path.is_file(), f"{folder} holds no run on Ray (it has no {RECORD})")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
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
