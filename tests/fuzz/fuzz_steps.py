"""What the steps of rows, and the weights in groups, must satisfy; told from the case alone."""

import math
from collections import defaultdict

import numpy as np
import numpy.typing as npt

import tardigrad as tg
from tardigrad.policies.machine import PullAll
from tests.fuzz.fuzz_case import Case
from tests.fuzz.fuzz_schedule import Facts

CLOSE = 1e-9


def check_steps(case: Case, schedule: tg.Schedule) -> None:
    facts = Facts(case, schedule)
    most, paced = case.made_work.batches, isinstance(case.policy, tg.DyLU)
    if not paced or most == 1:
        assert not len(schedule.steps), "all rows take the steps of the work"
    else:
        assert len(schedule.steps) == schedule.rows
        assert schedule.steps.min() >= 1
        assert schedule.steps.max() <= most
        _by_speed(facts)
    _weights(facts)


def _by_speed(f: Facts) -> None:
    """H_w = max(1, ⌊H · v_w / max v⌋), where shard 0 hears of rows as they end."""
    assert isinstance(f.case.policy, tg.DyLU)
    s, most, last = f.s, f.case.made_work.batches, f.case.policy.rows
    if not f.undisturbed:
        return
    pushed = np.isfinite(s.end_s) & ~s.interrupted
    waits = isinstance(f.case.policy.pull_half(s.shards), PullAll)
    for row in range(s.rows):
        start_s, own = s.start_s[row], int(s.worker[row])
        if (pushed & (s.worker != own) & (s.end_s == start_s)).any():
            continue  # which came first is not told
        before = pushed & (s.end_s <= start_s)
        found = [_share(f, before, own, last)]
        if not waits:  # it may go on before shard 0 hears what it has just finished
            found.append(_share(f, before & (s.end_s < start_s), own, last))
        told = f"row {row}: other steps"
        assert any(_fits(f.steps[row], most, share) for share in found), told


def _share(f: Facts, heard: npt.NDArray[np.bool_], own: int, last: int) -> float:
    """Of the fastest worker's speed, by each one's last rows of those that were heard."""
    s, rows = f.s, defaultdict(list)
    for one in np.nonzero(heard)[0].tolist():
        rows[int(s.worker[one])].append(one)
    took = {
        worker: (sum(f.steps[r] for r in mine[-last:]), (s.end_s - s.start_s)[mine[-last:]])
        for worker, mine in rows.items()
    }
    speed = {worker: steps / took_s.sum() for worker, (steps, took_s) in took.items()}
    return float(speed[own] / max(speed.values())) if own in speed else 1.0


def _fits(steps: int, most: int, share: float) -> bool:
    least, top = (math.floor(most * share * factor) for factor in (1 - CLOSE, 1 + CLOSE))
    return max(1, least) <= steps <= max(1, min(most, top))


def _weights(f: Facts) -> None:
    """A quorum's that go by samples are in proportion to the steps; none where all are the same."""
    s, base = f.s, f.base
    if not isinstance(base, tg.Quorum):
        return
    for group in range(s.groups):
        steps = np.array([f.steps[row] for row in s.group(group)], dtype=float)
        given = s.weights(group)
        each = np.full(len(steps), 1 / len(steps)) if given is None or not len(given) else given
        expected = np.full(len(steps), 1 / len(steps))
        if base.weights != "equal":
            expected = steps / steps.sum()
        assert np.allclose(each, expected, rtol=1e-12), f"group {group}: other weights"
