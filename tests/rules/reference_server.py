"""The server that slow twins of the rules share: it hands out views, counts versions and delays.

Nothing here imports the package. A twin (`Reference`) turns a group of pushes (in worker order; one
push where nobody waits) into new parameters, number by number.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

Vector = list[float]
Gradient = Callable[[Vector, int, int], Vector]


class Push(NamedTuple):
    worker: int
    grad: Vector
    view: Vector
    delay: int


class Now(NamedTuple):
    lr: float
    max_lr: float
    updates: int
    """Updates, this one included."""


class Reference:
    """A server with its parameters; subclasses say how a group of pushes changes them."""

    def __init__(self, weight_decay: float = 0.0) -> None:
        self.weight_decay = weight_decay
        self.theta: Vector = []

    def start(self, theta: Vector) -> None:
        self.theta = list(theta)

    def decayed(self, push: Push) -> Push:
        grad = [g + self.weight_decay * t for g, t in zip(push.grad, self.theta, strict=True)]
        return push._replace(grad=grad)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        raise NotImplementedError

    def sent(self, now: Now) -> Vector:
        return list(self.theta)


def zeros(like: Vector) -> Vector:
    return [0.0 for _ in like]


def average(vectors: Sequence[Vector]) -> Vector:
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]


class Outcome(NamedTuple):
    theta: Vector
    average: Vector
    """The running average of θ at `ema`."""
    delays: list[int]


def reference_run(
    reference: Reference,
    theta0: Vector,
    gradient: Gradient,
    order: Sequence[int],
    workers: int,
    lr: Callable[[int], float],
    max_lr: float,
    ema: float = 0.9,
    clip: float | None = None,
    group: int = 1,
) -> Outcome:
    """Gradients arrive in this order; every `group` of them, in worker order, make one update, and
    their workers wait for it."""
    reference.start(theta0)
    views = [list(theta0) for _ in range(workers)]
    read, steps = [0] * workers, [0] * workers
    version = 0
    mean = list(theta0)
    delays: list[int] = []
    waiting: list[Push] = []
    for worker in order:
        grad = gradient(views[worker], worker, steps[worker])
        if clip is not None:
            norm = math.sqrt(sum(g * g for g in grad))
            grad = [g * min(1.0, clip / norm) for g in grad]
        steps[worker] += 1
        waiting.append(Push(worker, grad, views[worker], version - read[worker]))
        if len(waiting) < group:
            continue
        waiting.sort(key=lambda push: push.worker)
        now = Now(lr(version), max_lr, version + 1)
        reference.update(waiting, now)
        version += 1
        mean = [ema * a + (1 - ema) * t for a, t in zip(mean, reference.theta, strict=True)]
        for push in waiting:
            delays.append(push.delay)
            views[push.worker], read[push.worker] = reference.sent(now), version
        waiting = []
    return Outcome(reference.theta, mean, delays)
