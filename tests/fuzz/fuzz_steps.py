"""What the steps of rows, and the weights in groups, must satisfy; told from the case alone."""

import math
from collections import defaultdict

import numpy as np

import tardigrad as tg
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
    for row in range(s.rows):
        start_s, own = s.start_s[row], s.worker[row]
        if (pushed & (s.worker != own) & (s.end_s == start_s)).any():
            continue  # which came first is not told
        heard = np.nonzero(pushed & (s.end_s <= start_s))[0].tolist()
        rows: dict[int, list[int]] = defaultdict(list)
        for one in heard:
            rows[int(s.worker[one])].append(one)
        took = {
            worker: (sum(f.steps[r] for r in mine[-last:]), (s.end_s - s.start_s)[mine[-last:]])
            for worker, mine in rows.items()
        }
        speed = {worker: steps / took_s.sum() for worker, (steps, took_s) in took.items()}
        share = speed[own] / max(speed.values()) if own in speed else 1.0
        least, top = (math.floor(most * share * factor) for factor in (1 - CLOSE, 1 + CLOSE))
        assert max(1, least) <= f.steps[row] <= max(1, min(most, top)), f"row {row}: other steps"


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
