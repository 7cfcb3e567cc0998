"""Which gradients of a schedule run beside each other, as branches of one graph.

The next updates' gradients can be computed together as far as their views exist; those of a
synchronous round always. Branches share no tensor, so a gradient's bits do not depend on how many
run beside it: a run may be cut into launches anywhere, and stops, checkpoints and less memory
change no bit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.engine.fast.batches import just_in_time, ready_at
from tardigrad.engine.fast.groups import at_one_view, by_its_first
from tardigrad.engine.fast.requirements import why_not_one_by_one
from tardigrad.engine.fast.view_places import ViewPlaces, in_slots
from tardigrad.engine.job import Job
from tardigrad.engine.unsuited import Unsuited
from tardigrad.scheduling import Schedule

SIZES = (1, 2, 4, 8, 16)
"""Branches of the graphs that are captured. Four gradients of a small convolutional model fill a
large GPU, in bfloat16 sixteen."""


@dataclass(frozen=True)
class BranchPlan:
    """Gradients are counted as the updates apply them, `each` an update: one, or a round's.

    `reach`: for each gradient, the first after it that cannot be of its launch.
    """

    each: int
    places: ViewPlaces
    reach: Ints

    @classmethod
    def of(cls, job: Job) -> "BranchPlan":
        """Unsuited where updates apply other groups than rounds."""
        schedule = job.schedule
        if at_one_view(job):
            each, planned = int(schedule.group_start[1]), by_its_first(schedule)
            until = (np.arange(len(schedule.group_rows)) // each + 1) * each
        else:
            why = why_not_one_by_one(schedule)
            if why:
                raise Unsuited(why)
            each, planned, until = 1, schedule, reach(schedule)
        return cls(each, in_slots(planned, just_in_time(planned, 1)), until)

    @property
    def longest(self) -> int:
        """The most gradients that can be computed together."""
        return int((self.reach - np.arange(len(self.reach))).max(initial=1))

    def launches(self, begin: int, end: int, most: int) -> Iterator[tuple[int, int]]:
        """(first gradient, branches) of each graph launched for updates begin to end − 1."""
        at = begin * self.each
        while at < end * self.each:
            size = launched(min(int(self.reach[at]), end * self.each) - at, most)
            yield at, size
            at += size


def reach(schedule: Schedule) -> Ints:
    """Of updates of one gradient each: for each, the first after it whose view is not there yet, or
    whose worker has come since: a window reads a worker's own rows ahead."""
    rows = schedule.group_rows
    needs = np.maximum(ready_at(schedule)[rows], _came_before(schedule.worker[rows]))
    return np.searchsorted(np.maximum.accumulate(needs), np.arange(len(rows)), side="right")


def _came_before(workers: Ints) -> Ints:
    """For each update, how many updates there were when its worker had last been applied."""
    out = np.zeros(len(workers), dtype=np.int64)
    by_worker = np.argsort(workers, kind="stable")
    again = workers[by_worker][1:] == workers[by_worker][:-1]
    out[by_worker[1:][again]] = by_worker[:-1][again] + 1
    return out


def launched(count: int, most: int) -> int:
    """The branches of the next graph, where `count` gradients could be computed together."""
    return max(size for size in SIZES if size <= min(count, most))


def most_branches(longest: int, each_bytes: int, left_bytes: int) -> int:
    """The most branches that launches of up to `longest` use within the bytes that are left; 0
    where not even one fits."""
    fit = [size for size in SIZES if size * each_bytes <= left_bytes]
    return launched(longest, max(fit)) if fit else 0
