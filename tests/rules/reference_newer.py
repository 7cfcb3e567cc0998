"""Slow twins of weights by delay, rates by delay, and the newer optimizers: plain floats and loops.

Nothing here imports the package. A matrix is a list of rows.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from tests.rules.reference_optimizers import AdamLike
from tests.rules.reference_server import Now, Push, Reference, Vector, average, zeros
from tests.rules.references import HeavyBall

Weight = Callable[[int], float]
Matrix = list[list[float]]


def polynomial(a: float = 0.5) -> Weight:
    return lambda delay: float((delay + 1) ** -a)


def hinge(a: float = 10.0, b: float = 4.0) -> Weight:
    return lambda delay: 1.0 if delay <= b else 1.0 / (a * (delay - b) + 1.0)


def constant(delay: int) -> float:
    return 1.0


class StalenessWeighted(HeavyBall):
    def __init__(self, weight: Weight, **options: Any) -> None:
        super().__init__(**options)
        self.weight = weight

    def penalise(self, push: Push, now: Now) -> Vector:
        return [self.weight(push.delay) * g for g in push.grad]


class FedAsync(Reference):
    """Each model is mixed in by its share; a group's, as the mean of what each would make."""

    def __init__(self, weight: Weight, weight_decay: float = 0.0) -> None:
        super().__init__(weight_decay)
        self.weight = weight

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        mixed = []
        for push in map(self.decayed, pushes):
            a = now.lr * self.weight(push.delay)
            new = [w - g for w, g in zip(push.view, push.grad, strict=True)]
            mixed.append([(1 - a) * t + a * x for t, x in zip(self.theta, new, strict=True)])
        self.theta = average(mixed)


class DelayAdaptive(HeavyBall):
    def __init__(self, n: float, **options: Any) -> None:
        super().__init__(**options)
        self.n = n

    def factor(self, push: Push) -> float:
        return 1.0 if push.delay <= self.n else self.n / push.delay


class PipeMare(HeavyBall):
    def __init__(self, updates: float, **options: Any) -> None:
        super().__init__(**options)
        self.updates, self.power = updates, 1.0

    def observe(self, pushes: Sequence[Push], now: Now) -> None:
        made = now.updates - 1
        self.power = 1 - made / self.updates if made < self.updates else 0.0

    def factor(self, push: Push) -> float:
        return 1.0 / float(max(1, push.delay) ** self.power)


class DelayedNesterov(Reference):
    """As printed, push by push; t counts them from 0."""

    def __init__(
        self, every: int, momentum: float = 0.9, c: float = 0.0, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weight_decay)
        self.every, self.beta, self.c = every, momentum, c

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.m, self.delta = zeros(theta), zeros(theta)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        n, t = self.every, now.updates - 1
        for i, g in enumerate(average([self.decayed(push).grad for push in pushes])):
            self.delta[i] += g
            if (t + 1) % n == 0:
                self.m[i] = self.beta * self.m[i] + self.delta[i] / n
                self.delta[i] = 0.0
                step = (1 - self.c * n + self.c) * self.beta * self.m[i] + g / n
            else:
                step = self.c * self.beta * self.m[i] + g / n
            self.theta[i] -= now.lr * step


class ScheduleFree(Reference):
    """θ is x, as a running mean of all z so far; y is sent."""

    def __init__(self, beta: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(weight_decay)
        self.beta = beta

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.z, self.sum = list(theta), zeros(theta)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        for i, g in enumerate(average([self.penalised(self.decayed(push)) for push in pushes])):
            self.z[i] -= now.lr * g
            self.sum[i] += self.z[i]
            self.theta[i] = self.sum[i] / now.updates

    def penalised(self, push: Push) -> Vector:
        return push.grad

    def sent(self, now: Now) -> Vector:
        pairs = zip(self.z, self.theta, strict=True)
        return [(1 - self.beta) * z + self.beta * x for z, x in pairs]


class WeightedScheduleFree(ScheduleFree):
    def penalised(self, push: Push) -> Vector:
        return [polynomial()(push.delay) * g for g in push.grad]


class Muon(AdamLike):
    """Matrices one by one, and AdamW for the rest; `shapes` lie one after another."""

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        momentum: float = 0.95,
        nesterov: bool = True,
        decay: float = 0.1,
        match_rms: bool = False,
        adam_lr: float = 1.0,
        spared: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.shapes, self.momentum, self.nesterov = shapes, momentum, nesterov
        self.decay, self.match_rms, self.adam_lr = decay, match_rms, adam_lr
        self.spared = spared

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.buffer = zeros(theta)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        grad = average([push.grad for push in pushes])
        for i, t in enumerate(self.theta):
            self.theta[i] = t if i in self.spared else t - now.lr * self.decay * t
        mu = self.momentum
        self.buffer = [mu * b + (1 - mu) * g for b, g in zip(self.buffer, grad, strict=True)]
        self.m, self.u = self._moments(grad, grad)
        adam = self.direction(self.m, self.u, now.updates)
        begin = 0
        for shape in self.shapes:
            end = begin + math.prod(shape)
            step = [self.adam_lr * d for d in adam[begin:end]]
            if len(shape) == 2:
                along = self.buffer[begin:end]
                if self.nesterov:
                    along = [
                        mu * b + (1 - mu) * g for b, g in zip(along, grad[begin:end], strict=True)
                    ]
                rows, columns = shape
                ratio = math.sqrt(max(1.0, rows / columns))
                if self.match_rms:
                    ratio = 0.2 * math.sqrt(max(rows, columns))
                matrix = [along[r * columns : (r + 1) * columns] for r in range(rows)]
                step = [ratio * x for row in orthogonal(matrix) for x in row]
            for i, s in zip(range(begin, end), step, strict=True):
                self.theta[i] -= now.lr * s
            begin = end


def orthogonal(matrix: Matrix) -> Matrix:
    """Five steps of X ← a X + b (X Xᵀ) X + c (X Xᵀ)² X, from X / ‖X‖."""
    a, b, c = 3.4445, -4.775, 2.0315
    if len(matrix) > len(matrix[0]):
        return transposed(orthogonal(transposed(matrix)))
    norm = max(1e-7, math.sqrt(sum(x * x for row in matrix for x in row)))
    x = [[value / norm for value in row] for row in matrix]
    for _ in range(5):
        once = product(product(x, transposed(x)), x)
        twice = product(product(x, transposed(x)), once)
        x = [
            [a * p + b * q + c * r for p, q, r in zip(*rows, strict=True)]
            for rows in zip(x, once, twice, strict=True)
        ]
    return x


def transposed(matrix: Matrix) -> Matrix:
    return [list(column) for column in zip(*matrix, strict=True)]


def product(left: Matrix, right: Matrix) -> Matrix:
    columns = transposed(right)
    return [
        [sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in left
    ]
