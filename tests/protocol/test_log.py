"""A log's records: what is written is read, what is torn is void, what is damaged is refused."""

import math
import zlib

import pytest

from tardigrad.protocol.log import (
    LogEntry,
    LoggedDigest,
    Opening,
    read_log,
    write_digest,
    write_entry,
    write_opening,
)
from tardigrad.protocol.messages import (
    Applied,
    Came,
    Completed,
    Confirmation,
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

PUSH = PushHeader(5, 1, 4, 3, (2, 9), (1, 7), 0.1, 1 / 3, math.inf, True)
STOPPED = PUSH._replace(interrupted=True)
EVENTS: list[Event] = [
    *(
        Came(FromWorker(1, 2, 3, 4, 5, 6, body))
        for body in (
            PUSH,
            PUSH._replace(fresh=True),
            STOPPED,
            VersionRequest(3),
            RowRequest(4),
            Confirmation(),
        )
    ),
    Rang(3),
    Joined(3, 0),
    Left(3),
    Replaced(1, 2),
    Completed(PUSH),
    Fenced(1, 7),
    Reinstated(1, 7, 30, ((0, 12), (3, -1))),
    Extended(800),
]
DECISIONS: list[Decision] = [
    Released(1, 2, 3),
    Applied((1, 2), 0.5),
    Applied((1, 2), 0.5, (0.1, 0.9)),
    Dropped(3, "late"),
    RowGiven(1, 2, 3),
    TimerSet(0.1, 4),
    WorkerInterrupted(1, 2),
]
OPENING = Opening(0, 2, 1, 345)


def written(events: list[Event]) -> list[bytes]:
    return [write_entry(LogEntry(event, 0.25 * i, DECISIONS)) for i, event in enumerate(events)]


def test_everything_that_can_happen_is_read_as_it_was_written() -> None:
    records = [write_opening(OPENING), *written(EVENTS), write_digest(7, "0123")]
    log = read_log(b"".join(records), "log")
    assert log.opening == OPENING
    assert [entry.event for entry in log.entries] == EVENTS
    assert [entry.now_s for entry in log.entries] == [0.25 * i for i in range(len(EVENTS))]
    assert all(entry.decided == DECISIONS for entry in log.entries)
    assert log.digests == [LoggedDigest(7, "0123", after=len(EVENTS))]
    assert log.size == sum(map(len, records))
    assert log.ends[0] == len(records[0]) + len(records[1])


def test_every_kind_of_event_is_tried() -> None:
    """So that a new one cannot be forgotten here."""
    assert {type(event) for event in EVENTS} == set(Event.__args__)
    assert {type(decision) for decision in DECISIONS} == set(Decision.__args__)


def test_a_torn_end_is_as_if_it_had_not_happened() -> None:
    whole = b"".join([write_opening(OPENING), *written(EVENTS[:2])])
    last = written(EVENTS[2:3])[0]
    for torn in range(len(last)):
        log = read_log(whole + last[:torn], "log")
        assert (len(log.entries), log.size) == (2, len(whole))


def test_nothing_after_a_damaged_record_counts() -> None:
    first, second, third = written(EVENTS[:3])
    wrong = second.replace(b"1", b"2", 1)
    log = read_log(first + wrong + third, "log")
    assert (len(log.entries), log.size) == (1, len(first))


def test_a_record_of_another_version_is_refused_with_its_place() -> None:
    def line(text: bytes) -> bytes:
        return b"%08x %s\n" % (zlib.crc32(text), text)

    first = write_opening(OPENING)
    place = rf"shard-0\.log, at byte {len(first)}: a record that cannot be read"
    with pytest.raises(ValueError, match=place):
        read_log(first + line(b'["sideways",1,0.0,[]]'), "shard-0.log")
    with pytest.raises(ValueError, match="its format is 3, this version reads 2"):
        read_log(line(b'["opening",3,0,1,0,0]'), "shard-0.log")
