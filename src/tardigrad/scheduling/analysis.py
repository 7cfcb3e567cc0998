"""What schedules say without any tensors: speed, waiting, staleness, losses."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tardigrad.clusters import Messages
from tardigrad.core.arrays import Floats, Ints
from tardigrad.scheduling.schedule import Schedule


@dataclass(frozen=True)
class Distribution:
    """A distribution in one line."""

    count: int
    least: float
    mean: float
    median: float
    most: float
    deviation: float

    @staticmethod
    def of(values: npt.ArrayLike) -> "Distribution":
        """Of the finite values; all zero where there are none."""
        given = np.asarray(values, dtype=np.float64).ravel()
        given = given[np.isfinite(given)]
        if not len(given):
            return Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0)
        return Distribution(
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
        lasted_s: its time until the last update.
        updates_per_s: versions per second of its time (of the shard that has the fewest).
        gradients_per_s: applied gradients per second; one applied at half the shards counts half.
        waiting: share of the time in which workers were there, from each one's first start to its
            last, that they did not compute.
        delay: of the applied gradients.
        dropped: share of the decided gradients that were dropped; one dropped at half the shards
            counts half.
        interrupted: share of the decided gradients that were interrupted, which are among them.
    """

    lasted_s: float
    updates_per_s: float
    gradients_per_s: float
    waiting: float
    delay: Distribution
    dropped: float
    interrupted: float = 0.0

    @staticmethod
    def of(schedule: Schedule) -> "Summary":
        lasted = schedule.end_time or np.inf
        applied, dropped = len(schedule.group_rows), int(schedule.lost.sum())  # slices
        return Summary(
            lasted_s=schedule.end_time,
            updates_per_s=schedule.updates / lasted,
            gradients_per_s=applied / schedule.shards / lasted,
            waiting=waiting_share(schedule),
            delay=Distribution.of(schedule.delays),
            dropped=dropped / max(1, applied + dropped),
            interrupted=float(schedule.interrupted[schedule.drop_row].sum())
            / max(1, applied + dropped),
        )

    @property
    def update_s(self) -> float:
        """Mean time per update; 0 where there are none."""
        return 1 / self.updates_per_s if self.updates_per_s else 0.0

    @property
    def gradients_per_update(self) -> float:
        """Mean over the updates of how many gradients went into each; 0 where there are none."""
        return self.gradients_per_s / self.updates_per_s if self.updates_per_s else 0.0


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
    """Share of the workers' time spent waiting, from each one's first start to its last.

    Time in which a worker was gone is not its time. A gradient that was lost with its worker was
    computed until then.
    """
    before, after = _neighbours(schedule)
    starts, ends = schedule.start_s[before], schedule.end_s[before].copy()
    there = schedule.start_s[after] - starts
    for worker in np.unique(schedule.member_worker):
        mine = schedule.worker[before] == worker
        left, away = _absences_s(schedule, int(worker))
        first = np.searchsorted(left, starts[mine])
        ends[mine] = np.where(np.isnan(ends[mine]), np.append(left, np.nan)[first], ends[mine])
        gone = np.concatenate([[0.0], np.cumsum(away)])
        there[mine] -= gone[np.searchsorted(left, schedule.start_s[after][mine])] - gone[first]
    known = np.isfinite(ends)  # on Ray a worker may die and another be in its place at once
    total, waited = float(there[known].sum()), there[known] - (ends - starts)[known]
    return max(0.0, float(waited.sum())) / total if total else 0.0


def arrivals_s(schedule: Schedule, messages: Messages | None = None) -> Floats:
    """When each gradient came to each shard: (rows, shards), NaN for one that was not computed to
    its end.

    Args:
        messages: the network that the schedule was made with, drawn for its seed; None: messages
            take no time. No link may have held anything back.
    """
    out = np.repeat(schedule.end_s[:, None], schedule.shards, axis=1)
    out[schedule.interrupted] = np.nan
    if messages is None:
        return out
    pushed = np.nonzero(np.isfinite(schedule.end_s))[0]
    pushed = pushed[np.argsort(schedule.worker[pushed], kind="stable")]
    counts = np.bincount(schedule.worker[pushed], minlength=schedule.workers)
    sequence = np.arange(len(pushed)) - np.repeat(np.cumsum(counts) - counts, counts)
    everyone = np.arange(schedule.workers)
    took = messages.times(False, everyone, np.arange(int(counts.max(initial=0))))
    out[pushed] += took[schedule.worker[pushed], :, sequence]
    if messages.network.outages:
        for shard in range(schedule.shards):
            out[:, shard] = [messages.up_s(shard, at_s) for at_s in out[:, shard].tolist()]
    return out


def collect_times_s(schedule: Schedule, messages: Messages | None = None) -> Floats:
    """Time from the start of each version until its k-th gradient has come to the shard.

    A version starts when the shard has applied the one before. One row per version that each shard
    completed, one column per k from 1 to the number of workers; NaN where fewer gradients were
    begun at that version or had come when the schedule ended. Meant for policies whose workers all
    begin with the version (Sync, Backup, Partial, Deadline). Gradients that came too late and were
    dropped count like the others.

    Where messages take time the first version is left out, because nobody had to pull it.
    """
    came_s = arrivals_s(schedule, messages)
    first = 0 if messages is None else 1
    by_shard = [_collected_s(schedule, s, came_s[:, s])[first:] for s in range(schedule.shards)]
    return np.concatenate(by_shard)


def _collected_s(schedule: Schedule, shard: int, came_s: Floats) -> Floats:
    began = np.concatenate([[0.0], schedule.group_time_s[schedule.group_shard == shard]])
    done = np.nonzero(np.isfinite(came_s))[0]
    version = schedule.read[done, shard]
    took = came_s[done] - began[version]
    order = np.lexsort((took, version))
    version, took = version[order], took[order]
    rank = np.arange(len(version)) - np.searchsorted(version, version, side="left")
    completed = len(began) - 1
    kept = (version < completed) & (rank < schedule.workers)
    out = np.full((completed, schedule.workers), np.nan)
    out[version[kept], rank[kept]] = took[kept]
    return out


def _absences_s(schedule: Schedule, worker: int) -> tuple[Floats, Floats]:
    """When the worker left, and for how long; 0 where it was not back by the end."""
    left: list[float] = []
    away: list[float] = []
    mine = schedule.member_worker == worker
    at_s = schedule.member_time_s[mine].tolist()
    for joined, now_s in zip(schedule.member_joined[mine].tolist(), at_s, strict=True):
        if not joined:
            left.append(now_s)
            away.append(0.0)
        elif left:
            away[-1] = now_s - left[-1]
    return np.array(left), np.array(away)


def _neighbours(schedule: Schedule) -> tuple[Ints, Ints]:
    """Pairs of rows that follow each other at the same worker."""
    by_worker = np.argsort(schedule.worker, kind="stable")
    same = np.diff(schedule.worker[by_worker]) == 0
    return by_worker[:-1][same], by_worker[1:][same]
