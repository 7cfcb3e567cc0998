"""A shard's log: one line of JSON per event, with what was decided, written before anything leaves.

A line is [kind, now, what, decided]. Beside the events there are "start" lines, one each time the
shard's process begins (its incarnation), and "digest" lines (version, digest of θ).

An append survives the death of the process; `sync=True` adds fdatasync, so that it survives loss of
power too. Loss of the machine takes a folder that other machines see.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tardigrad.runtime.messages import Decided, Event, from_plain, to_plain

START, DIGEST = "start", "digest"


class Line(NamedTuple):
    event: Event
    decided: list[Decided]


@dataclass
class Story:
    """What a log tells."""

    lines: list[Line] = field(default_factory=list)
    digests: list[tuple[int, str]] = field(default_factory=list)
    incarnation: int = -1
    size: int = 0
    """Bytes that hold whole lines; a kill may leave a part of one behind them."""


class Log:
    """Appends. One write per line, so that a kill leaves at most one broken line, the last."""

    def __init__(self, path: Path, sync: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.open(path, flags, 0o644)
        self._sync = sync

    def start(self, incarnation: int, now_s: float) -> None:
        self._write([START, now_s, [incarnation], []])

    def event(self, event: Event, decided: list[Decided]) -> None:
        self._write([event.kind, event.now_s, event.what, [to_plain(d) for d in decided]])

    def digest(self, version: int, digest: str, now_s: float) -> None:
        self._write([DIGEST, now_s, [version, digest], []])

    def _write(self, line: list[Any]) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")
        if self._sync:
            os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def read_log(path: Path) -> Story:
    """The whole lines of a log; a broken last one never had consequences."""
    story = Story()
    if not path.exists():
        return story
    data = path.read_bytes()
    story.size = data.rfind(b"\n") + 1
    for number, text in enumerate(data[: story.size].splitlines(), start=1):
        try:
            kind, now_s, what, decided = json.loads(text)
            if kind == START:
                (story.incarnation,) = what
            elif kind == DIGEST:
                story.digests.append((what[0], what[1]))
            else:
                event = Event(kind, now_s, _tuples(kind, what))
                story.lines.append(Line(event, [from_plain(d) for d in decided]))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{path}, line {number} is damaged ({error})") from error
    return story


def mend_log(path: Path, story: Story) -> None:
    """Cut off a broken last line, so that appending goes on with a whole one."""
    if path.exists() and path.stat().st_size != story.size:
        os.truncate(path, story.size)


def _tuples(kind: str, what: list[Any]) -> tuple[Any, ...]:
    """A push's versions are a tuple in memory and a list in JSON."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in what)
