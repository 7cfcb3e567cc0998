"""Waiting policies: who waits, what is dropped, when a shard applies; one a file."""

from tardigrad.policies.asynchronous import Async
from tardigrad.policies.backup import Backup
from tardigrad.policies.bounded_delay import BoundedDelay
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
from tardigrad.policies.soft_sync import SoftSync
from tardigrad.policies.stale_synchronous import StaleSynchronous
from tardigrad.policies.synchronous import Sync

POLICIES: dict[str, type[Policy]] = {
    "async": Async,
    "sync": Sync,
    "backup": Backup,
    "soft_sync": SoftSync,
    "stale_synchronous": StaleSynchronous,
    "bounded_delay": BoundedDelay,
}

__all__ = [
    "POLICIES",
    "Apply",
    "Arrival",
    "Async",
    "Backup",
    "BoundedDelay",
    "Drop",
    "Policy",
    "PullAll",
    "PullHalf",
    "PushHalf",
    "Release",
    "Request",
    "SetTimer",
    "SoftSync",
    "StaleSynchronous",
    "Start",
    "Sync",
]
