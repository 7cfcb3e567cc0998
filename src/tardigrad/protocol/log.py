"""The records of a shard's log, as lines: a checksum, then JSON.

Each process of a shard has a log of its own. Its first record (`Opening`) says which process it
follows and how many bytes of that one's log count; whatever stands behind them is void. A record of
an event holds what was decided. Digests of θ stand between them.

A line is whole if its checksum is right. The first that is not ends the log: what it tells had no
consequences, because nothing leaves a shard before its record is written.
"""

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tardigrad.protocol.messages import (
    Applied,
    Came,
    Completed,
    Confirmation,
    Deal,
    Decision,
    Dropped,
    Event,
    Extended,
    Fenced,
    FromWorker,
    Joined,
    Left,
    PushHeader,
    Rang,
    Reinstated,
    Released,
    Replaced,
    RowGiven,
    RowRequest,
    TimerSet,
    VersionRequest,
    WorkerInterrupted,
)

FORMAT = 2
OPENING, OPENED, DIGEST, DEVIATIONS = "opening", "opened", "digest", "deviations"

_EVENTS: dict[str, type[Any]] = {
    "rang": Rang,
    "joined": Joined,
    "left": Left,
    "replaced": Replaced,
    "fenced": Fenced,
    "reinstated": Reinstated,
    "extended": Extended,
}
_HEADERS: dict[str, type[Any]] = {"completed": Completed}
_BODIES: dict[str, type[Any]] = {
    "request": VersionRequest,
    "row": RowRequest,
    "heard": Confirmation,
}
_DECISIONS: dict[str, type[Any]] = {
    "release": Released,
    "apply": Applied,
    "drop": Dropped,
    "give": RowGiven,
    "timer": TimerSet,
    "interrupt": WorkerInterrupted,
}
_NAMES: dict[type[Any], str] = {
    cls: name for kinds in (_EVENTS, _HEADERS, _BODIES, _DECISIONS) for name, cls in kinds.items()
}
_SILENT: dict[type[Any], tuple[Any, ...]] = {
    cls: tuple(cls._field_defaults.values()) for cls in (PushHeader, Released, Applied, RowGiven)
}
_ENVELOPE = len(FromWorker._fields) - 1

_encode = json.JSONEncoder(separators=(",", ":")).encode


class Opening(NamedTuple):
    """The first record of a process's log."""

    shard: int
    epoch: int
    follows: int
    """The epoch of the process before it; 0: none."""
    counted: int
    """Bytes of that one's log that count."""
    added: int = 0
    """Entries that recovery adds to that, which stand first."""


class LogEntry(NamedTuple):
    """An event, when it happened on the shard's clock, and what was decided."""

    event: Event
    now_s: float
    decided: list[Decision]
    deviations: tuple[float, ...] = ()
    """Of the shard, one for each release, where a link goes by them."""


class LoggedDigest(NamedTuple):
    """Of θ at a version."""

    version: int
    digest: str
    after: int
    """How many entries stand before it."""


@dataclass
class ShardLog:
    """What one process has written."""

    opening: Opening | None = None
    opened: bool = False
    """Whether it has been told to all: others know how it had begun."""
    entries: list[LogEntry] = field(default_factory=list)
    digests: list[LoggedDigest] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The bytes up to the end of each entry."""
    size: int = 0
    """Bytes that hold whole records."""


def write_opening(opening: Opening) -> bytes:
    return _line([OPENING, FORMAT, *opening])


def write_opened() -> bytes:
    return _line([OPENED])


def write_digest(version: int, digest: str) -> bytes:
    return _line([DIGEST, version, digest])


def write_entry(entry: LogEntry) -> bytes:
    event, now_s, decided, deviations = entry
    plain = [[_NAMES[type(d)], *_short(d)] for d in decided]
    if deviations:
        plain.append([DEVIATIONS, *deviations])
    return _line([*_plain_event(event), now_s, plain])


def read_log(data: bytes, name: str) -> ShardLog:
    """The whole records of a log."""
    log = ShardLog()
    at = 0
    while (end := data.find(b"\n", at)) >= 0:
        text = _checked(data[at:end])
        if text is None:
            break
        try:
            _take(log, json.loads(text), end + 1)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            message = f"{name}, at byte {at}: a record that cannot be read ({error})"
            raise ValueError(message) from error
        at = end + 1
    log.size = at
    return log


def _take(log: ShardLog, record: list[Any], end: int) -> None:
    kind = record[0]
    if kind == OPENING:
        if record[1] != FORMAT:
            raise ValueError(f"its format is {record[1]}, this version reads {FORMAT}")
        log.opening = Opening(*record[2:])
    elif kind == OPENED:
        log.opened = True
    elif kind == DIGEST:
        log.digests.append(LoggedDigest(record[1], record[2], len(log.entries)))
    else:
        *event, now_s, decided = record
        deviations = tuple(decided.pop()[1:]) if decided and decided[-1][0] == DEVIATIONS else ()
        decisions = [_decision(d) for d in decided]
        log.entries.append(LogEntry(_event(event), now_s, decisions, deviations))
        log.ends.append(end)


def _line(record: Sequence[Any]) -> bytes:
    text = _encode(record).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _checked(line: bytes) -> bytes | None:
    text = line[9:]
    return text if line[:9] == b"%08x " % zlib.crc32(text) else None


def _plain_event(event: Event) -> list[Any]:
    match event:
        case Came(message):
            *envelope, body = message
            if isinstance(body, PushHeader):
                return ["push", *envelope, *_short(body)]
            return [_NAMES[type(body)], *envelope, *body]
        case Completed(header):
            return [_NAMES[type(event)], *_short(header)]
        case _:
            return [_NAMES[type(event)], *event]


def _event(plain: Sequence[Any]) -> Event:
    kind, *values = plain
    event: Event
    if kind == "reinstated":
        shard, epoch, rows, released = values
        event = Reinstated(shard, epoch, rows, tuple((w, version) for w, version in released))
    elif kind in _EVENTS:
        event = _EVENTS[kind](*values)
    elif kind in _HEADERS:
        event = _HEADERS[kind](header(values))
    else:
        rest = values[_ENVELOPE:]
        body = header(rest) if kind == "push" else _BODIES[kind](*rest)
        event = Came(FromWorker._make([*values[:_ENVELOPE], body]))
    return event


def header(values: Sequence[Any]) -> PushHeader:
    """From plain data, in which tuples are lists."""
    push = PushHeader(*values)
    return push._replace(
        read=tuple(push.read),
        epochs=tuple(push.epochs),
        merged=tuple(push.merged),
        deviations=tuple(push.deviations),
        deal=None if push.deal is None else Deal(*push.deal),
    )


def _short(plain: Decision | PushHeader) -> Sequence[Any]:
    """Without what is said only where a link or weights are, where there are none."""
    silent = _SILENT.get(type(plain))
    if silent is not None and plain[-len(silent) :] == silent:
        return plain[: -len(silent)]
    return plain


def _decision(plain: Sequence[Any]) -> Decision:
    name, *values = plain
    decision: Decision = _DECISIONS[name](*values)
    match decision:
        case Applied(rows, _, weights):
            return decision._replace(rows=tuple(rows), weights=tuple(weights))
        case RowGiven(deal=deal) if deal is not None:
            return decision._replace(deal=Deal(*deal))
    return decision
