"""The policies that a plan looks at."""

import numpy as np

from tardigrad.core.arrays import Floats
from tardigrad.policies import (
    Async,
    Backup,
    BoundedDelay,
    Deadline,
    Partial,
    Policy,
    Quorum,
    SoftSync,
    StaleSynchronous,
    Sync,
)
from tardigrad.policies.lateness import DEVIATIONS, late_after_s


def deadline_of(times_s: Floats, deviations: float = DEVIATIONS) -> float:
    """`late_after_s` of the time to each gradient of each version, NaN where none came."""
    return late_after_s(times_s[np.isfinite(times_s)].tolist(), deviations)


def measuring_quorum(workers: int) -> Quorum:
    """More than half of the workers, so that their times have a median, and whoever is not late by
    the times that it measures itself."""
    return Quorum(size=workers // 2 + 1, grace_deviations=DEVIATIONS)


def candidates(workers: int, backups: int, deadline_s: float) -> list[Policy]:
    """Every policy with settings that suit so many workers, of whom so many may be spared.

    `RampUp` is not among them: after its first updates it is the policy that it is around.
    """
    if workers == 1:
        return [Async(), Sync()]
    spared = min(max(1, backups), workers - 1)
    return [
        Async(),
        Sync(),
        Backup(spared),
        Partial(push=workers - spared, pull=0.9),
        Deadline(timeout_s=deadline_s),
        measuring_quorum(workers),
        SoftSync(groups=max(1, workers // 4)),
        StaleSynchronous(bound=3),
        BoundedDelay(max_delay=2 * workers),
    ]
