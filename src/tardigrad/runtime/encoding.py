"""Messages between workers and shards as frames: a header of plain data, and arrays.

What comes in is checked: a header that no correct peer sends is refused by name.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from numpy.typing import NDArray

from tardigrad.links import Encoded
from tardigrad.protocol.log import header as push_header
from tardigrad.protocol.messages import (
    Confirmation,
    Deal,
    FromShard,
    FromWorker,
    Hello,
    PushHeader,
    Released,
    RowRequest,
    VersionRequest,
    WorkerBody,
)
from tardigrad.transport.arena import SlotAddress
from tardigrad.transport.buffers import SlotOrArray
from tardigrad.transport.frames import FrameError

_BODIES: dict[str, Any] = {
    "push": push_header,
    "request": lambda values: VersionRequest(*values),
    "row": lambda values: RowRequest(*values),
    "heard": lambda values: Confirmation(*values),
}
_KINDS: dict[type[Any], str] = {
    PushHeader: "push",
    VersionRequest: "request",
    RowRequest: "row",
    Confirmation: "heard",
}
HELLO, SAID = "hello", "said"
_INT = frozenset((int,))


class EncodedMessage(NamedTuple):
    header: list[Any]
    arrays: list[NDArray[Any]]


class WorkerFrame(NamedTuple):
    """What a worker sent: a message, the gradient's slice, slot or encoded form, and buffers
    beside it."""

    message: FromWorker | Hello
    payload: SlotOrArray | Encoded | None
    buffers: list[NDArray[Any]]


class ShardFrame(NamedTuple):
    """What a shard sent: a message, and a payload for each of its releases that carries one."""

    message: FromShard
    payloads: list[SlotOrArray | None]


def encode_from_worker(
    message: FromWorker | Hello,
    payload: SlotOrArray | Encoded | None = None,
    buffers: Sequence[NDArray[Any]] = (),
) -> EncodedMessage:
    if isinstance(message, Hello):
        return EncodedMessage([HELLO, *message], [])
    *envelope, body = message
    arrays: list[NDArray[Any]] = []
    place: Any
    if isinstance(payload, tuple) and not isinstance(payload, SlotAddress):
        place, arrays = {"encoded": len(payload)}, list(payload)
    else:
        place = _encode_payload(payload, arrays)
    return EncodedMessage([_KINDS[type(body)], envelope, list(body), place], [*arrays, *buffers])


def decode_from_worker(header: list[Any], arrays: list[NDArray[Any]]) -> WorkerFrame:
    try:
        kind, *rest = header
        if kind == HELLO:
            return WorkerFrame(Hello(*_ints(rest)), None, [])
        envelope, values, place = rest
        body: WorkerBody = _BODIES[kind](values)
        worker, life, number, heard, at, have = _ints(envelope)
        message = FromWorker(worker, life, number, heard, at, have, body)
        if isinstance(place, dict):
            (many,) = _ints([place["encoded"]])
            if not 0 < many <= len(arrays):
                raise ValueError(f"{many} of {len(arrays)} arrays")
            return WorkerFrame(message, tuple(arrays[:many]), arrays[many:])
        payload = _decode_payload(place, arrays)
        return WorkerFrame(message, payload, arrays[1:] if place == 0 else arrays)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FrameError(f"a message that no worker sends ({error})") from error


def encode_from_shard(message: FromShard, payloads: Sequence[SlotOrArray | None]) -> EncodedMessage:
    *about, releases, deviations, stop, sequence, deal = message
    arrays: list[NDArray[Any]] = []
    said = [
        [released.sequence, released.version, _encode_payload(payload, arrays)]
        for released, payload in zip(releases, payloads, strict=True)
    ]
    about += (stop, sequence, *(deal or ()))
    return EncodedMessage([SAID, about, said, *([list(deviations)] if deviations else [])], arrays)


def decode_from_shard(header: list[Any], arrays: list[NDArray[Any]]) -> ShardFrame:
    try:
        kind, about, said, *told = header
        if kind != SAID:
            raise ValueError(kind)
        deviations = tuple(map(float, told[0])) if told else ()
        if told and len(deviations) != len(said):
            raise ValueError(f"{len(deviations)} deviations of {len(said)} releases")
        shard, epoch, worker, life, acked, step, row, stop, newest, *dealt = _ints(about)
        releases, payloads = [], []
        for sequence, version, place in said:
            payload = _decode_payload(place, arrays)
            sequence, version = _ints([sequence, version])
            releases.append(Released(worker, sequence, version, carries=payload is not None))
            payloads.append(payload)
        message = FromShard(
            shard,
            epoch,
            worker,
            life,
            acked,
            step,
            row,
            tuple(releases),
            deviations,
            stop,
            newest,
            Deal(*dealt) if dealt else None,
        )
        return ShardFrame(message, payloads)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise FrameError(f"a message that no shard sends ({error})") from error


def _encode_payload(payload: SlotOrArray | None, arrays: list[NDArray[Any]]) -> Any:
    """Nothing, a slot's address, or the place of an array."""
    if payload is None:
        return None
    if isinstance(payload, SlotAddress):
        return payload.plain()
    arrays.append(payload)
    return len(arrays) - 1


def _decode_payload(place: Any, arrays: list[NDArray[Any]]) -> SlotOrArray | None:
    if place is None:
        return None
    if isinstance(place, int):
        return arrays[place]
    return SlotAddress.from_plain(place)


def _ints(values: Sequence[Any]) -> list[int]:
    if not _INT.issuperset(map(type, values)):
        raise ValueError(f"not all of {values} are whole numbers")
    return list(values)
