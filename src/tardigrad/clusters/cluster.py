"""When things happen: the interface between time models and the event loop."""

from abc import ABC, abstractmethod

import numpy as np
import numpy.typing as npt

from tardigrad.checks import count
from tardigrad.keys import Floats

Ints = npt.NDArray[np.int64]


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


class TimedCluster(Cluster):
    """A cluster with a clock."""

    @abstractmethod
    def realise(self, seed: int) -> StepTimes:
        """Draw what is drawn once per run (machine speeds); steps are drawn when asked for."""


class Clockless(Cluster):
    """A cluster that knows only an order: whose gradient arrives next."""

    @abstractmethod
    def dispatch(self, seed: int) -> "Dispatch": ...


class Dispatch(ABC):
    """One realisation of an order of arrivals."""

    @abstractmethod
    def next(self, event: int, computing: Ints) -> int:
        """Whose gradient arrives as event number `event`, out of those who compute (sorted)."""
