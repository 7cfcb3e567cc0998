"""Dynamic local updates: slower workers take fewer steps between a pull and a push."""

import math
from collections import deque
from dataclasses import dataclass

from tardigrad.core.checks import count
from tardigrad.policies.pace import Pace
from tardigrad.policies.wrapping import WrappingPolicy

ROUNDING = 1e-9
"""So that a share that is whole but for the rounding of times does not lose a step."""


@dataclass(frozen=True)
class DyLU(WrappingPolicy):
    """Run `policy` with rows of H_w = max(1, ⌊H · v_w / max v⌋) steps: all end about together.

    H are the steps of the work (`tg.LocalSteps(16, …)`), v_w = steps / (end − start) of the last
    rows that worker w has pushed, and max v that of the fastest worker that is there. A worker that
    has not pushed yet takes H.

    Shard 0 decides when it gives a worker its row, from the headers that have come to it. What it
    decided stands in the schedule (`steps`).

    Args:
        policy: any other policy.
        rows: over how many of its last rows a worker's speed is taken.

    Limits: with H = 1, and where all workers are equally fast, it is `policy`.

    **Choice**: the paper's workers have speeds that are known. Here they are measured, over a few
    rows, so that they may change on the way.

    Reference: Liu et al., Asynchronous Local-SGD Training for Language Modeling (2024).
    """

    rows: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        count("rows", self.rows)

    def pace(self, steps: int) -> Pace | None:
        return _BySpeed(steps, self.rows) if steps > 1 else None


class _BySpeed:
    def __init__(self, most: int, rows: int) -> None:
        self.most, self._rows = most, rows
        self._last: dict[int, deque[tuple[int, float]]] = {}
        """(steps, seconds) of each worker's last rows."""

    def heard(self, worker: int, steps: int, took_s: float) -> None:
        self._last.setdefault(worker, deque(maxlen=self._rows)).append((steps, took_s))

    def left(self, worker: int) -> None:
        self._last.pop(worker, None)

    def steps(self, worker: int) -> int:
        if worker not in self._last:
            return self.most
        fastest = max(map(self._speed, self._last))
        share = 1.0 if fastest == math.inf else self._speed(worker) / fastest
        return max(1, min(self.most, math.floor(self.most * share * (1 + ROUNDING))))

    def _speed(self, worker: int) -> float:
        steps, took_s = map(sum, zip(*self._last[worker], strict=True))
        return steps / took_s if took_s > 0 else math.inf
