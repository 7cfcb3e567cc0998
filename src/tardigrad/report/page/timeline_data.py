"""A schedule as a page's timeline draws it."""

from typing import Any

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.report.page.packing import packed_ints, packed_times, plain_numbers
from tardigrad.report.pushes import pushes
from tardigrad.report.timeline import absences, push_outcomes
from tardigrad.scheduling import Schedule

MOST_GRADIENTS = 200_000
MOST_WORKERS = 1_000
"""What a page shows of larger runs: the first of them, and it says so."""


def timeline_data(schedule: Schedule, gradients: int = MOST_GRADIENTS) -> dict[str, Any]:
    """Gradients in the order of their starts, of the first workers.

    Where a shard never got a gradient its delay is −1. A step is told as far as it is not the
    number of gradients that its worker began before.
    """
    shown = min(schedule.workers, MOST_WORKERS)
    rows = np.nonzero(schedule.worker < shown)[0]
    end_s = schedule.end_time
    if len(rows) > gradients:
        end_s = min(end_s, float(schedule.start_s[rows[gradients]]))
        rows = rows[:gradients]
    rows = rows[schedule.start_s[rows] <= end_s]
    arrived = pushes(schedule)
    begin_s = schedule.start_s[rows]
    until_s = np.fmin(schedule.end_s[rows], end_s)  # those without an end go on until the last
    gone = absences(schedule, end_s)
    for worker, stays in gone.items():
        for left_s, _ in stays:  # what was lost with its worker was computed until then
            cut = (schedule.worker[rows] == worker) & (begin_s <= left_s) & (until_s > left_s)
            until_s[cut & np.isnan(schedule.end_s[rows])] = left_s
    dropped = np.nonzero(np.isin(schedule.drop_row, rows) & (schedule.drop_time_s <= end_s))[0]
    place = np.full(schedule.rows, -1)
    place[rows] = np.arange(len(rows))
    times = [schedule.group_time_s[schedule.group_shard == s] for s in range(schedule.shards)]
    delay = np.where(arrived.time_s[rows] <= end_s, arrived.delay[rows], -1)
    return {
        "workers": shown,
        "allWorkers": schedule.workers,
        "shards": schedule.shards,
        "gradients": schedule.rows,
        "end": end_s,
        "whole": end_s == schedule.end_time,
        "worker": packed_ints(schedule.worker[rows]),
        "step": packed_ints(schedule.step[rows] - _begun_before(schedule.worker[rows])),
        "taken": _steps_taken(schedule, rows),
        "start": packed_times(begin_s, end_s),
        "length": packed_times(np.maximum(until_s - begin_s, 0.0), end_s),
        "outcome": packed_ints(push_outcomes(schedule)[rows]),
        "read": [packed_ints(schedule.read[rows, s]) for s in range(schedule.shards)],
        "delay": [packed_ints(delay[:, s]) for s in range(schedule.shards)],
        "applied": [packed_ints(arrived.applied[rows, s]) for s in range(schedule.shards)],
        "versions": [packed_times(at_s[at_s <= end_s], end_s) for at_s in times],
        "drops": {
            "row": packed_ints(place[schedule.drop_row[dropped]]),
            "shard": packed_ints(schedule.drop_shard[dropped]),
            "time": packed_times(schedule.drop_time_s[dropped], end_s),
            "reason": packed_ints(schedule.drop_reason[dropped]),
        },
        "reasons": list(schedule.reasons),
        "absences": [
            [worker, *plain_numbers(stay, 17)]
            for worker, stays in gone.items()
            if worker < shown
            for stay in stays
        ],
    }


def _steps_taken(schedule: Schedule, rows: Ints) -> Any:
    """By each row, or one number where all take as many."""
    if len(schedule.steps):
        return packed_ints(schedule.steps[rows])
    return int(schedule.about.get("batches", 1))


def _begun_before(worker: Ints) -> Ints:
    """How many gradients the same worker began before each."""
    by_worker = np.argsort(worker, kind="stable")
    counts = np.bincount(worker)
    out = np.empty(len(worker), dtype=np.int64)
    out[by_worker] = np.arange(len(worker)) - np.repeat(np.cumsum(counts) - counts, counts)
    return out
