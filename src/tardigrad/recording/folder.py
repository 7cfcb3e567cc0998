"""A run as a folder: the spec, the schedule, metrics, checkpoint, parameters, figures.

Files only: who makes them and what they mean is told elsewhere. A folder appears whole (made
beside and renamed) or not at all, and a file in it is replaced in one step, so that a kill at any
moment leaves something to go on from.
"""

import fcntl
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.engine.result_files import (
    GRADIENTS,
    METRICS,
    RECORD,
    SCHEDULE,
    SUMMARY,
    named_if_damaged,
    read_numbers,
    write,
    write_metrics,
    write_summary,
)
from tardigrad.engine.resume import CHECKPOINT
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.prefix import first_updates

SPEC = "spec.toml"
COMPARISON = "comparison.jsonl"
SCHEDULES = "schedules"
"""Of a comparison: the folder of the schedules that are shown."""
OLD_RAY = "ray"
"""Where a run on Ray had its logs and record in 0.1, beside what every run has."""

Record = Mapping[str, Any]


@dataclass(frozen=True)
class RunFolder:
    """One run's files. `metrics.jsonl` has a line per evaluation, `summary.json` how it ended."""

    path: Path

    @classmethod
    def create(cls, path: Path, spec: str, schedule: Schedule | None) -> "RunFolder":
        """A new folder that holds what the run starts from; one in use is refused."""
        check_free(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            (partial / SPEC).write_text(spec, encoding="utf-8")
            if schedule is not None:
                schedule.save(partial / SCHEDULE)
            partial.chmod(0o755)  # mkdtemp makes private folders
            os.rename(partial, path)
        except BaseException:
            shutil.rmtree(partial)
            raise
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        require(
            any((path / file).is_file() for file in (SPEC, SUMMARY, RECORD, CHECKPOINT)),
            f"{path} holds no run (it has no {SPEC} and no {SUMMARY}): give a folder that "
            "`tardigrad run` wrote, or tg.simulate or tg.train with checkpoints=",
        )
        return cls(path)

    @property
    def has_spec(self) -> bool:
        """Not where a run was made in Python, of objects."""
        return (self.path / SPEC).is_file()

    def _check_spec(self) -> None:
        require(
            self.has_spec,
            f"{self.path} holds a run that was made in Python, without a {SPEC}: go on with it "
            f"there, with checkpoints=tg.Checkpoints({str(self.path)!r}, resume=True)",
        )

    def spec(self) -> dict[str, Any]:
        self._check_spec()
        with named_if_damaged(self.path / SPEC):
            found = tomllib.loads((self.path / SPEC).read_text(encoding="utf-8"))
            compared = (self.path / COMPARISON).exists()  # perhaps of Python objects
            lacks = [name for name in ("updates", "task", "rule") if name not in found]
            require(compared or not lacks, f"it does not say its {', '.join(lacks)}")
        return found

    @property
    def record_place(self) -> Path | None:
        """Where the record of a run on Ray is; None: it is of none."""
        places = (self.path, self.path / OLD_RAY)
        return next((place for place in places if (place / RECORD).is_file()), None)

    def schedule(self) -> Schedule:
        return Schedule.load(self.path / SCHEDULE)

    def executed(self) -> Schedule | None:
        """Of its schedule, what was executed: one that diverged or was stopped has more. None where
        it was not kept."""
        if not (self.path / SCHEDULE).exists():
            return None
        summary, schedule = self.summary(), self.schedule()
        if summary.get("status") not in ("diverged", "stopped"):
            return schedule
        return first_updates(schedule, summary.get("updates", schedule.updates))

    def save_schedule(self, schedule: Schedule) -> None:
        schedule.save(self.path / SCHEDULE)

    def metrics(self) -> list[dict[str, Any]]:
        """The evaluations so far."""
        return _lines(self.path / METRICS)

    def summary(self) -> dict[str, Any]:
        file = self.path / SUMMARY
        if not file.exists():
            return {}
        with named_if_damaged(file):
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            require(isinstance(found, dict), "it holds no table")
        return found

    def write_metrics(self, records: Iterable[Record]) -> None:
        write_metrics(self.path / METRICS, records)

    def write_summary(self, summary: Record) -> None:
        write_summary(self.path, summary)

    def gradients(self) -> dict[str, list[float]]:
        """What was measured of every applied gradient, by name; nothing where nothing was."""
        return read_numbers(self.path / GRADIENTS)

    def outcomes(self) -> list[dict[str, Any]]:
        """What a comparison has come to so far; none where the folder is of a single run."""
        return _lines(self.path / COMPARISON)

    def add_outcome(self, outcome: Record) -> None:
        with (self.path / COMPARISON).open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome) + "\n")

    def add_shown_schedule(self, schedule: Schedule, name: str) -> str:
        """Of a comparison; returns the file's name, which stands in the line of its outcome."""
        (self.path / SCHEDULES).mkdir(exist_ok=True)
        file = f"{name}.safetensors"
        schedule.save(self.path / SCHEDULES / file)
        return file

    def shown_schedules(self) -> dict[str, Schedule]:
        """Of a comparison: the schedules that its timelines show, each by the label of a run."""
        kept = [one for one in self.outcomes() if "schedule" in one]
        kept.sort(key=lambda one: int(one["place"]))
        folder = self.path / SCHEDULES
        return {one["label"]: Schedule.load(folder / one["schedule"]) for one in kept}

    @contextmanager
    def locked(self) -> Iterator[Callable[[str], None]]:
        """Ours alone while the block runs; a killed process holds no lock. The block is given what
        changes the spec file."""
        with ExitStack() as held:
            held.enter_context(self._lock())

            def save_spec(spec: str) -> None:
                if spec != (self.path / SPEC).read_text(encoding="utf-8"):
                    write(self.path / SPEC, spec)
                    # That is another file now: locked too, before the first is let go.
                    held.enter_context(self._lock())

            yield save_spec

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self._check_spec()
        with (self.path / SPEC).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"{self.path} is being written by a run that is still going: "
                    "wait for it, or give another --out"
                ) from None
            yield


def check_free(path: Path, resumes: bool = False) -> None:
    """Refuse a place that holds anything, before any work is done for it.

    resumes: whether the one who asks can go on with a run that is there.
    """
    if (path / SPEC).exists():
        compared = (path / COMPARISON).exists()
        more = f"look at it (tardigrad report {path})"
        raise ValueError(
            f"{path} already holds a {'comparison' if compared else 'run'}: "
            f"{'go on with it (add --resume)' if resumes and not compared else more}, "
            "or write elsewhere (--out DIR)"
        )
    require(
        not path.exists() or (path.is_dir() and not any(path.iterdir())),
        f"{path} is already there and not empty: write elsewhere (--out DIR)",
    )


def _lines(file: Path) -> list[dict[str, Any]]:
    """Those that are whole: a run that was killed may have been writing the last."""
    if not file.exists():
        return []
    *lines, _ = file.read_text(encoding="utf-8").split("\n")
    try:
        return [json.loads(line) for line in lines]
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is damaged: {error}") from None
