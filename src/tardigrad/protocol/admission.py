"""Whether a shard takes what a worker says."""

from enum import Enum


class Refused(ValueError):
    """A push that no correct worker sends."""


class Admission(Enum):
    NEW = "new"
    """To be handled as an event."""
    AGAIN = "again"
    """It is in the log: to be acknowledged again."""
    VOID = "void"
    """Of another life, before its turn, or at a view that does not count (yet): not answered."""
