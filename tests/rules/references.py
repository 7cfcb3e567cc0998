"""Slow twins of the rules: plain floats and loops, straight from the formulas, no tensors.

Nothing here imports the package. In a group, statistics of the gradient take the group's mean once,
every gradient is corrected by its own delay and view, and the mean of the corrected ones makes one
step. Those of the adaptive optimizers are in `reference_optimizers.py`.
"""

import math
from collections.abc import Sequence
from typing import Any

from tests.rules.reference_server import Now, Push, Reference, Vector, average, zeros


class HeavyBall(Reference):
    """Rules that end in v ← γ v + p; θ ← θ − η c v (Nesterov: p + γ v), from a penalised gradient p
    and a factor c on the whole step."""

    def __init__(
        self, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        super().__init__(weight_decay)
        self.momentum, self.nesterov = momentum, nesterov

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.v = zeros(theta)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        pushes = [self.decayed(push) for push in pushes]
        self.observe(pushes, now)
        penalised = [self.penalise(push, now) for push in pushes]
        factor = self.factor(pushes[0]) if len(pushes) == 1 else 1.0
        if len(pushes) > 1:
            # A whole-step factor has no single value in a group: each gradient takes its own.
            penalised = [
                [self.factor(push) * p for p in grad]
                for push, grad in zip(pushes, penalised, strict=True)
            ]
        self.move(average(penalised), now.lr * factor)

    def move(self, grad: Vector, lr: float) -> None:
        for i, p in enumerate(grad):
            self.v[i] = self.momentum * self.v[i] + p
            step = p + self.momentum * self.v[i] if self.nesterov else self.v[i]
            self.theta[i] -= lr * step

    def observe(self, pushes: Sequence[Push], now: Now) -> None:
        """Move what is kept of the gradients."""

    def penalise(self, push: Push, now: Now) -> Vector:
        return push.grad

    def factor(self, push: Push) -> float:
        return 1.0


def tau_of(delay: int, convention: str = "plus_one") -> int:
    return delay + 1 if convention == "plus_one" else max(1, delay)


class StalenessAware(HeavyBall):
    def __init__(self, on: str = "step", staleness: str = "plus_one", **options: Any) -> None:
        super().__init__(**options)
        self.on, self.convention = on, staleness

    def penalise(self, push: Push, now: Now) -> Vector:
        if self.on == "step":
            return push.grad
        return [g / tau_of(push.delay, self.convention) for g in push.grad]

    def factor(self, push: Push) -> float:
        return 1.0 / tau_of(push.delay, self.convention) if self.on == "step" else 1.0


class ExponentialPenalty(HeavyBall):
    def __init__(self, rate: float, **options: Any) -> None:
        super().__init__(**options)
        self.rate = rate

    def factor(self, push: Push) -> float:
        return math.exp(-self.rate * push.delay)


class Fasgd(HeavyBall):
    def __init__(
        self,
        gamma: float = 0.9,
        beta: float = 0.9,
        eps: float = 1e-4,
        estimator: str = "std",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.gamma, self.beta, self.eps, self.estimator = gamma, beta, eps, estimator

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.n, self.b, self.m = zeros(theta), zeros(theta), zeros(theta)
        self.deviation = [1.0 for _ in theta]

    def observe(self, pushes: Sequence[Push], now: Now) -> None:
        for i, g in enumerate(average([push.grad for push in pushes])):
            if self.estimator == "magnitude":
                self.m[i] = self.gamma * self.m[i] + (1 - self.gamma) * abs(g)
                continue
            self.n[i] = self.gamma * self.n[i] + (1 - self.gamma) * g**2
            self.b[i] = self.gamma * self.b[i] + (1 - self.gamma) * g
            s = math.sqrt(max(0.0, self.n[i] - self.b[i] ** 2) + self.eps)
            spread = s if self.estimator == "std" else 1 / s
            self.deviation[i] = self.beta * self.deviation[i] + (1 - self.beta) * spread

    def penalise(self, push: Push, now: Now) -> Vector:
        tau = push.delay + 1
        if self.estimator == "magnitude":
            return [g / (tau * (m + 0.001)) for g, m in zip(push.grad, self.m, strict=True)]
        return [g / (v * tau) for g, v in zip(push.grad, self.deviation, strict=True)]


class DelayCompensated(HeavyBall):
    def __init__(
        self,
        lam: float,
        adaptive: bool = False,
        decay: float = 0.95,
        mean_square: str = "worker",
        within_group: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.lam, self.adaptive, self.decay = lam, adaptive, decay
        self.mean_square, self.within_group = mean_square, within_group

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.server_square = zeros(theta)
        self.worker_square: dict[int, Vector] = {}

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        if not self.within_group:
            super().update(pushes, now)
            return
        for push in pushes:
            super().update([push], now._replace(lr=now.lr / len(pushes)))

    def observe(self, pushes: Sequence[Push], now: Now) -> None:
        if self.mean_square == "server":
            mean = average([push.grad for push in pushes])
            self.server_square = self._moved(self.server_square, mean)

    def penalise(self, push: Push, now: Now) -> Vector:
        square = self.server_square
        if self.mean_square == "worker":
            square = self._moved(self.worker_square.get(push.worker, zeros(push.grad)), push.grad)
            self.worker_square[push.worker] = square
        out = []
        for i, g in enumerate(push.grad):
            lam = self.lam / math.sqrt(square[i] + 1e-7) if self.adaptive else self.lam
            out.append(g + lam * g * g * (self.theta[i] - push.view[i]))
        return out

    def _moved(self, old: Vector, grad: Vector) -> Vector:
        pairs = zip(old, grad, strict=True)
        return [self.decay * ms + (1 - self.decay) * g * g for ms, g in pairs]


class GapStatistics:
    """G of Gap-Aware: per parameter, or by the norms of given parts of the vector."""

    def __init__(
        self, parts: Sequence[tuple[int, int]] | None, tolerance: float, max_lr: float | None
    ) -> None:
        self.parts, self.tolerance, self.max_lr = parts, tolerance, max_lr
        self.m: Vector = []

    def sizes(self, vector: Vector) -> Vector:
        if self.parts is None:
            return [abs(x) for x in vector]
        return [math.sqrt(sum(x * x for x in vector[a:b])) for a, b in self.parts]

    def observe(self, u: Vector) -> None:
        sizes = self.sizes(u)
        self.m = self.m or zeros(sizes)
        self.m = [0.999 * m + 0.001 * s * s for m, s in zip(self.m, sizes, strict=True)]

    def penalty(self, theta: Vector, view: Vector, now: Now) -> Vector:
        distance = self.sizes([t - w for t, w in zip(theta, view, strict=True)])
        max_lr = now.max_lr if self.max_lr is None else self.max_lr
        out = []
        for d, m in zip(distance, self.m, strict=True):
            c = max_lr * (math.sqrt(m / (1 - 0.999**now.updates)) + 1e-8)
            out.append(max(0.0, d / c - self.tolerance) + 1)
        if self.parts is None:
            return out
        return [g for g, (a, b) in zip(out, self.parts, strict=True) for _ in range(a, b)]


class GapAware(HeavyBall):
    def __init__(
        self,
        momentum: float = 0.9,
        nesterov: bool = True,
        parts: Sequence[tuple[int, int]] | None = None,
        step: str = "previous",
        max_lr: float | None = None,
        tolerance: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(momentum, nesterov, weight_decay)
        self.parts, self.step = parts, step
        self.tolerance, self.max_lr = tolerance, max_lr

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.gap = GapStatistics(self.parts, self.tolerance, self.max_lr)

    def observe(self, pushes: Sequence[Push], now: Now) -> None:
        if self.step == "previous":
            self.gap.observe(self.v)
            return
        mean = average([push.grad for push in pushes])
        self.gap.observe([self.momentum * v + g for v, g in zip(self.v, mean, strict=True)])

    def penalise(self, push: Push, now: Now) -> Vector:
        penalty = self.gap.penalty(self.theta, push.view, now)
        return [g / big_g for g, big_g in zip(push.grad, penalty, strict=True)]


class Dana(Reference):
    """v_i per worker; `kind` is what the gradient is divided by: nothing, τ or G. What is sent
    looks ahead by γ times what θ would move if every worker's v came in groups like the last."""

    def __init__(self, kind: str, momentum: float = 0.9, weight_decay: float = 0.0) -> None:
        super().__init__(weight_decay)
        self.kind, self.momentum = kind, momentum

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.v: dict[int, Vector] = {}
        self.last_group = 1
        self.gap = GapStatistics(None, 0.0, None)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        pushes = [self.decayed(push) for push in pushes]
        for push in pushes:
            self.v.setdefault(push.worker, zeros(push.grad))
        if self.kind == "gap":
            tentative = [self._next(push.worker, push.grad) for push in pushes]
            self.gap.observe(average(tentative))
        steps = []
        for push in pushes:
            if self.kind == "none":
                divisor = [1.0] * len(push.grad)
            elif self.kind == "staleness":
                divisor = [push.delay + 1.0] * len(push.grad)
            else:
                divisor = self.gap.penalty(self.theta, push.view, now)
            penalised = [g / d for g, d in zip(push.grad, divisor, strict=True)]
            self.v[push.worker] = self._next(push.worker, penalised)
            steps.append(self.v[push.worker])
        for i, step in enumerate(average(steps)):
            self.theta[i] -= now.lr * step
        self.last_group = len(pushes)

    def leave(self, worker: int) -> None:
        self.v.pop(worker, None)

    def _next(self, worker: int, grad: Vector) -> Vector:
        return [self.momentum * v + g for v, g in zip(self.v[worker], grad, strict=True)]

    def sent(self, now: Now) -> Vector:
        return [
            t - now.lr * self.momentum * sum(v[i] for v in self.v.values()) / self.last_group
            for i, t in enumerate(self.theta)
        ]
