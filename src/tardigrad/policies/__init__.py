"""Waiting policies: who waits, what is dropped, when a shard applies; one a file."""

from tardigrad.policies.asynchronous import Async
from tardigrad.policies.machine import (
    Apply,
    Arrival,
    Drop,
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    Release,
    Request,
    SetTimer,
    Start,
)
from tardigrad.policies.synchronous import Sync

POLICIES: dict[str, type[Policy]] = {"async": Async, "sync": Sync}

__all__ = [
    "POLICIES",
    "Apply",
    "Arrival",
    "Async",
    "Drop",
    "Policy",
    "PullAll",
    "PullHalf",
    "PushHalf",
    "Release",
    "Request",
    "SetTimer",
    "Start",
    "Sync",
]
