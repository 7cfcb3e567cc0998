"""Step times drawn independently from one distribution, by worker and step."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tardigrad.clusters.cluster import StepTimes
from tardigrad.core.arrays import Floats
from tardigrad.core.keys import Bits, keys

Draw = Callable[[Bits, npt.ArrayLike], Floats]


class DrawnTimes(StepTimes):
    """`draw(stream, position)`: the stream is the worker's, the position its step."""

    def __init__(self, seed: int, workers: int, draw: Draw) -> None:
        self.streams = keys(seed, "step", workers)
        self.draw = draw

    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> Floats:
        return np.asarray(self.draw(self.streams[np.asarray(workers)], steps), dtype=np.float64)
