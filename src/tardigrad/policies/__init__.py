"""Waiting policies: who waits, what is dropped, when a shard applies; one a file."""

from tardigrad.policies.asynchronous import Async
from tardigrad.policies.backup import Backup
from tardigrad.policies.bounded_delay import BoundedDelay
from tardigrad.policies.deadline import Deadline
from tardigrad.policies.dylu import DyLU
from tardigrad.policies.machine import (
    Apply,
    Arrival,
    Drop,
    Interrupt,
    Policy,
    PullAll,
    PullHalf,
    PushHalf,
    Release,
    Request,
    SetTimer,
    Start,
)
from tardigrad.policies.malenia import Malenia
from tardigrad.policies.partial import Partial
from tardigrad.policies.partial_pull import PartialPull
from tardigrad.policies.quorum import Quorum
from tardigrad.policies.ramp_up import RampUp
from tardigrad.policies.rennala import Rennala
from tardigrad.policies.ringmaster import Ringmaster
from tardigrad.policies.soft_sync import SoftSync
from tardigrad.policies.stale_synchronous import StaleSynchronous
from tardigrad.policies.synchronous import Sync

POLICIES: dict[str, type[Policy]] = {
    "async": Async,
    "sync": Sync,
    "backup": Backup,
    "deadline": Deadline,
    "partial": Partial,
    "soft_sync": SoftSync,
    "stale_synchronous": StaleSynchronous,
    "bounded_delay": BoundedDelay,
    "ringmaster": Ringmaster,
    "rennala": Rennala,
    "malenia": Malenia,
    "quorum": Quorum,
    "partial_pull": PartialPull,
    "ramp_up": RampUp,
    "dylu": DyLU,
}

__all__ = [
    "POLICIES",
    "Apply",
    "Arrival",
    "Async",
    "Backup",
    "BoundedDelay",
    "Deadline",
    "Drop",
    "DyLU",
    "Interrupt",
    "Malenia",
    "Partial",
    "PartialPull",
    "Policy",
    "PullAll",
    "PullHalf",
    "PushHalf",
    "Quorum",
    "RampUp",
    "Release",
    "Rennala",
    "Request",
    "Ringmaster",
    "SetTimer",
    "SoftSync",
    "StaleSynchronous",
    "Start",
    "Sync",
]
