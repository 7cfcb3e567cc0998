"""When a shard's round ends, from when its gradients come: `Backup`, `Deadline` and `Quorum`.

Each takes the times of all workers' gradients of the version, sorted, and when it began. What comes
after the end has no part in it.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from tardigrad.core.arrays import Floats
from tardigrad.policies import Backup, Deadline, Policy, Quorum
from tardigrad.policies.lateness import SLACK
from tardigrad.policies.quorum import REMEMBERED


class End(NamedTuple):
    """Of a round: its time, and when the timer was set that ran out then; NaN: a gradient ended
    it."""

    end_s: float
    set_s: float = math.nan


class RoundEnds(ABC):
    """Of all shards' rounds, one after the other."""

    reason: str
    """Why a gradient that comes later is dropped."""

    @abstractmethod
    def end(
        self, shard: int, comes_s: Floats, began_s: float, late_s: Floats, took_s: Floats
    ) -> End:
        """Of this shard's next round. `late_s`: when those of earlier versions come that had not
        when it began; `took_s`: since their own version began, NaN if that is forgotten."""


class WithQuota(RoundEnds):
    """With the quota-th."""

    reason = "old version"

    def __init__(self, quota: int) -> None:
        self.quota = quota

    def end(
        self, shard: int, comes_s: Floats, began_s: float, late_s: Floats, took_s: Floats
    ) -> End:
        return End(float(comes_s[self.quota - 1]))


class AtDeadline(RoundEnds):
    """With the last, or so long after its beginning: the first that comes sets the timer."""

    reason = "too late"

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s

    def end(
        self, shard: int, comes_s: Floats, began_s: float, late_s: Floats, took_s: Floats
    ) -> End:
        first_s, last_s = float(comes_s[0]), float(comes_s[-1])
        over_s = first_s + max(0.0, began_s + self.timeout_s - first_s)
        return End(last_s) if last_s <= over_s else End(over_s, first_s)


class AfterGrace(RoundEnds):
    """With the last, or a grace after the size-th, given or from the times measured so far."""

    reason = "too late"

    def __init__(self, policy: Quorum, workers: int, shards: int) -> None:
        self.policy = policy
        self._remembered = REMEMBERED * workers
        self._took_s = [np.empty(0) for _ in range(shards)]

    def end(
        self, shard: int, comes_s: Floats, began_s: float, late_s: Floats, took_s: Floats
    ) -> End:
        at_s, last_s = float(comes_s[self.policy.size - 1]), float(comes_s[-1])
        grace_s, deviations = self.policy.grace_s, self.policy.grace_deviations
        measured = np.empty(0)
        came_s = np.concatenate([comes_s, late_s])
        if deviations is not None:
            in_turn = np.argsort(came_s, kind="stable")
            came_s = came_s[in_turn]
            measured = np.concatenate([comes_s - began_s, took_s])[in_turn]
            until = self._heard(shard, measured[came_s <= at_s])
            grace_s = began_s + _late_after_s(until, deviations) - at_s
        if self.policy.size == len(comes_s) or grace_s <= 0:
            end = End(at_s)
        else:
            over_s = at_s + grace_s
            end = End(last_s) if last_s <= over_s else End(over_s, at_s)
        if deviations is not None:
            self._took_s[shard] = self._heard(shard, measured[came_s <= end.end_s])
        return end

    def _heard(self, shard: int, more_s: Floats) -> Floats:
        known = np.concatenate([self._took_s[shard], more_s[np.isfinite(more_s)]])
        return known[-self._remembered :]


def _late_after_s(times_s: Floats, deviations: float) -> float:
    """`late_after_s`, to the last bit, of an array."""
    median = float(np.median(times_s))
    spread = float(np.median(np.abs(times_s - median)))
    return (median + deviations * spread) * (1 + SLACK)


def round_ends(policy: Policy, workers: int, shards: int) -> RoundEnds | None:
    """None: its rounds end otherwise."""
    # A policy of one's own may be derived from one of these, and do something else.
    match policy:
        case Backup() if type(policy) is Backup:
            return WithQuota(workers - policy.backups)
        case Deadline() if type(policy) is Deadline:
            return AtDeadline(policy.timeout_s)
        case Quorum() if type(policy) is Quorum:
            plain = policy.late == "drop" and policy.weights == "equal"
            return AfterGrace(policy, workers, shards) if plain else None
    return None
