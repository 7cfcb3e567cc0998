"""What happens in the event loop, as numbers: bound methods would cost more to make and to queue.

An event is said by what happens, to which worker, in which of its stays, to which shard, and what
more there is to say: a message between the two, or something at one of them, where the others are
0. All have the same shape, because a call of that is faster than one whose arguments are unpacked.
"""

from typing import Any, NamedTuple

ARRIVAL, DECISION = 0, 1 << 60
"""Priorities, to which the sequence number is added."""

FINISHED = 0
"""A worker has computed its gradient."""
ARRIVED, HEADER, PULLED, PULLED_OVER_LINK, REQUESTED = range(1, 6)
"""Something has come over a channel."""
SHARD_TIMER, WORKER_TIMER, GO_ON = range(6, 9)
"""The time has come that was set."""
LEAVES, JOINS, LEFT, JOINED = range(9, 13)
"""A worker leaves or joins, and a shard hears that it has."""
INTERRUPT, INTERRUPTED = range(13, 15)
"""A worker hears that it is to stop, and a shard that it has."""

Happening = tuple[int, int, int, int, Any]
"""What happens, worker, stay, shard, and more."""
Queued = tuple[float, int, Happening]
"""When, priority and sequence in one number, and what."""


class Reply(NamedTuple):
    """What a link has made of a release."""

    version: int
    whole: bool
    deviation: float
