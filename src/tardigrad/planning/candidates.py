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
    SoftSync,
    StaleSynchronous,
    Sync,
)

SLACK = 1e-9
"""A deadline is this much later, relatively, than the gradient it is for: a median of rounded
times may lie just before the times themselves."""
DEVIATIONS = 5.0
"""How many median absolute deviations after the median is late: 3.4 standard deviations of normal
times (**choice**)."""


def deadline_of(times_s: Floats, deviations: float = DEVIATIONS) -> float:
    """median + k · MAD of the time from a version's beginning until a gradient of it comes.

    Neither figure is moved by how late stragglers are.

    Args:
        times_s: to each gradient of each version, NaN where none came.
        deviations: k.
    """
    came = times_s[np.isfinite(times_s)]
    median = float(np.median(came))
    return (median + deviations * float(np.median(np.abs(came - median)))) * (1 + SLACK)


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
        SoftSync(groups=max(1, workers // 4)),
        StaleSynchronous(bound=3),
        BoundedDelay(max_delay=2 * workers),
    ]
