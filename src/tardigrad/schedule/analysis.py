"""What schedules say without any tensors: speed, waiting, staleness, losses."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tardigrad.schedule.schedule import Floats, Ints, Schedule


@dataclass(frozen=True)
class Statistics:
    """A distribution in one line."""

    count: int
    least: float
    mean: float
    median: float
    most: float
    deviation: float

    @staticmethod
    def of(values: npt.ArrayLike) -> "Statistics":
        """Of the finite values; all zero where there are none."""
        given = np.asarray(values, dtype=np.float64).ravel()
        given = given[np.isfinite(given)]
        if not len(given):
            return Statistics(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return Statistics(
            count=len(given),
            least=float(given.min()),
            mean=float(given.mean()),
            median=float(np.median(given)),
            most=float(given.max()),
            deviation=float(given.std()),
        )


@dataclass(frozen=True)
class Summary:
    """One schedule in the planner's terms.

    Args:
        updates_per_s: versions per second of virtual time (of the shard that has the fewest).
        gradients_per_s: applied gradients per second; one applied at half the shards counts half.
        waiting: share of the workers' time, from their first start to their last, not computing.
        delay: of the applied gradients.
        dropped: share of the decided gradients that were dropped.
    """

    updates_per_s: float
    gradients_per_s: float
    waiting: float
    delay: Statistics
    dropped: float

    @staticmethod
    def of(schedule: Schedule) -> "Summary":
        lasted = schedule.end_time or np.inf
        applied, dropped = int(schedule.applied.sum()), int(schedule.dropped.sum())
        return Summary(
            updates_per_s=schedule.updates / lasted,
            gradients_per_s=applied / schedule.shards / lasted,
            waiting=waiting_share(schedule),
            delay=Statistics.of(schedule.delays),
            dropped=dropped / max(1, applied + dropped),
        )


def delays_at(schedule: Schedule, shard: int) -> Ints:
    """Delays of what one shard applied, in order of application."""
    shards = np.repeat(schedule.group_shard, np.diff(schedule.group_start))
    return np.asarray(schedule.delays[shards == shard])


def waits_s(schedule: Schedule) -> Floats:
    """The latency of every pull: from the end of a gradient to the start of the worker's next."""
    before, after = _neighbours(schedule)
    gaps = schedule.start_s[after] - schedule.end_s[before]
    return np.asarray(gaps[np.isfinite(gaps)])


def waiting_share(schedule: Schedule) -> float:
    """Share of the workers' time spent waiting, from each one's first start to its last."""
    before, after = _neighbours(schedule)
    computed = schedule.end_s[before] - schedule.start_s[before]
    waited = schedule.start_s[after] - schedule.end_s[before]
    known = np.isfinite(computed)  # a gradient that was lost with its worker has no end
    total = float(computed[known].sum() + waited[known].sum())
    return float(waited[known].sum()) / total if total else 0.0


def collect_times_s(schedule: Schedule, shard: int = 0) -> Floats:
    """Time from the start of each version until its k-th gradient is computed.

    One row per version that was completed, one column per k from 1 to the number of workers; NaN
    where fewer gradients were begun at that version or had been computed when the schedule ended.
    Meant for policies whose workers all begin with the version (Sync, Backup, Partial, Deadline).
    Gradients that came too late and were dropped count like the others.
    """
    began = np.concatenate([[0.0], schedule.group_time_s[schedule.group_shard == shard]])
    done = np.nonzero(np.isfinite(schedule.end_s))[0]
    version = schedule.read[done, shard]
    took = schedule.end_s[done] - began[version]
    order = np.lexsort((took, version))
    version, took = version[order], took[order]
    rank = np.arange(len(version)) - np.searchsorted(version, version, side="left")
    completed = len(began) - 1
    kept = (version < completed) & (rank < schedule.workers)
    out = np.full((completed, schedule.workers), np.nan)
    out[version[kept], rank[kept]] = took[kept]
    return out


def _neighbours(schedule: Schedule) -> tuple[Ints, Ints]:
    """Pairs of rows that follow each other at the same worker."""
    by_worker = np.argsort(schedule.worker, kind="stable")
    same = np.diff(schedule.worker[by_worker]) == 0
    return by_worker[:-1][same], by_worker[1:][same]
