"""When things happen: the interface between time models and the event loop."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self

import numpy.typing as npt

from tardigrad.clusters.network import Network
from tardigrad.core.arrays import Floats, Ints
from tardigrad.core.checks import count, not_negative, number, require


class StepTimes(ABC):
    """One realisation of a time model: how long each worker's each step takes."""

    @abstractmethod
    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        """Seconds of virtual time per (worker, step), broadcast together.

        A function of its arguments alone, so that asking twice, or for more, changes nothing.
        """


class Cluster(ABC):
    """A number of workers and a model of their speed: a frozen dataclass."""

    workers: int

    def check_workers(self) -> None:
        count("workers", self.workers)


@dataclass(frozen=True)
class Absence:
    """A worker leaves at a time, and perhaps returns.

    What it had not pushed by then is lost. What it had pushed is applied where it arrives, but not
    answered, even if the worker is back by then: it begins anew with what every shard has at its
    return. No group holds gradients that a worker has computed before it left and after it came
    back: the older one is dropped ("earlier stay").
    """

    worker: int
    leaves_s: float
    returns_s: float | None = None

    def __post_init__(self) -> None:
        count("worker", self.worker, least=0)
        not_negative("leaves_s", self.leaves_s)
        require(
            self.returns_s is None or number("returns_s", self.returns_s) > self.leaves_s,
            f"returns_s = {self.returns_s} is not after leaves_s = {self.leaves_s}",
        )


@dataclass(frozen=True, kw_only=True)
class TimedCluster(Cluster):
    """A cluster with a clock.

    Args:
        network: how long messages travel; None: no time at all.
        absences: workers that leave, or leave and return.
    """

    network: Network | None = None
    absences: tuple[Absence, ...] = ()

    def __post_init__(self) -> None:
        self.check_workers()
        for absence in self.absences:
            require(
                absence.worker < self.workers,
                f"absences name worker {absence.worker}, but there are {self.workers} workers",
            )
        for one, later in pairwise(sorted(self.absences, key=lambda a: (a.worker, a.leaves_s))):
            back_s = math.inf if one.returns_s is None else one.returns_s
            until = "for good" if one.returns_s is None else f"to {back_s:g} s"
            require(
                one.worker != later.worker or back_s < later.leaves_s,
                f"absences say that worker {one.worker} leaves at {later.leaves_s:g} s, but by "
                f"another it is away from {one.leaves_s:g} s {until}: make one of the two",
            )

    @abstractmethod
    def realise(self, seed: int) -> StepTimes:
        """Draw what is drawn once per run (machine speeds); steps are drawn when asked for."""

    def sized(self, workers: int) -> Self:
        """The same time model with another number of workers."""
        return replace(self, workers=workers)  # type: ignore[call-arg]  # every cluster has it

    @property
    def undisturbed(self) -> bool:
        """Whether messages take no time and nobody leaves."""
        return self.network is None and not self.absences


class Clockless(Cluster):
    """A cluster that knows only an order: whose gradient arrives next."""

    @abstractmethod
    def dispatch(self, seed: int) -> "Dispatch": ...


class Dispatch(ABC):
    """One realisation of an order of arrivals."""

    @abstractmethod
    def next(self, event: int, computing: Ints) -> int:
        """Whose gradient arrives as event number `event`, out of those who compute (sorted)."""
