"""Slow twins of the rules: plain floats and loops, straight from the formulas, no tensors.

Nothing here imports the package. Each reference turns a group of pushes (in worker order; one push
where nobody waits) into new parameters, number by number. `reference_run` plays the server: it
hands out views, counts versions and delays, and calls the reference.

In a group, statistics of the gradient take the group's mean once, every gradient is corrected by
its own delay and view, and the mean of the corrected ones makes one step.
"""

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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


def single(x: float) -> float:
    """Rounded to single precision."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


def zeros(like: Vector) -> Vector:
    return [0.0 for _ in like]


def average(vectors: Sequence[Vector]) -> Vector:
    return [sum(column) / len(vectors) for column in zip(*vectors, strict=True)]


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


class AdamLike(Reference):
    """Adam; the first moment takes g, g/τ or g/G, the second the raw g."""

    def __init__(
        self,
        kind: str = "none",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(weight_decay)
        self.kind, self.betas, self.eps = kind, betas, eps

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.m, self.u = zeros(theta), zeros(theta)
        self.gap = GapStatistics(None, 0.0, None)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        pushes = [self.decayed(push) for push in pushes]
        if self.kind == "gap":
            mean = average([push.grad for push in pushes])
            self.gap.observe(self.direction(*self._moments(mean, mean), now.updates))
        penalised = []
        for push in pushes:
            divisor = [1.0] * len(push.grad)
            if self.kind == "staleness":
                divisor = [push.delay + 1.0] * len(push.grad)
            elif self.kind == "gap":
                divisor = self.gap.penalty(self.theta, push.view, now)
            penalised.append([g / d for g, d in zip(push.grad, divisor, strict=True)])
        raw = average([push.grad for push in pushes])
        self.m, self.u = self._moments(average(penalised), raw)
        for i, d in enumerate(self.direction(self.m, self.u, now.updates)):
            self.theta[i] -= now.lr * d

    def _moments(self, first: Vector, raw: Vector) -> tuple[Vector, Vector]:
        b1, b2 = self.betas
        m = [b1 * old + (1 - b1) * g for old, g in zip(self.m, first, strict=True)]
        u = [b2 * old + (1 - b2) * g * g for old, g in zip(self.u, raw, strict=True)]
        return m, u

    def direction(self, m: Vector, u: Vector, count: int) -> Vector:
        b1, b2 = self.betas
        return [
            (a / (1 - b1**count)) / (math.sqrt(b / (1 - b2**count)) + self.eps)
            for a, b in zip(m, u, strict=True)
        ]


class AdamW(AdamLike):
    """Adam from parameters that have shrunk by η·wd, those left out not; g holds no decay."""

    def __init__(self, kind: str = "none", decay: float = 0.01, spared: Sequence[int] = ()) -> None:
        super().__init__(kind)
        self.decay, self.spared = decay, spared

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        before = list(self.theta)
        super().update(pushes, now)
        for i, old in enumerate(before):
            if i not in self.spared:
                self.theta[i] -= now.lr * self.decay * old


class Nadam(AdamLike):
    """Adam whose step looks ahead: this gradient by μ_k, and the mean by μ_{k+1}."""

    def __init__(
        self,
        kind: str = "none",
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        psi: float = 4e-3,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(kind, betas, eps, weight_decay)
        self.psi = psi

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.product = 1.0

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        pushes = [self.decayed(push) for push in pushes]
        shares = [push.delay + 1.0 if self.kind == "staleness" else 1.0 for push in pushes]
        penalised = average([[g / s for g in p.grad] for p, s in zip(pushes, shares, strict=True)])
        self.m, self.u = self._moments(penalised, average([push.grad for push in pushes]))
        k = now.updates
        mu, ahead = (self.betas[0] * (1 - 0.96 ** (n * self.psi) / 2) for n in (k, k + 1))
        self.product = single(self.product * single(mu))  # as torch keeps it
        for i, g in enumerate(penalised):
            root = math.sqrt(self.u[i] / (1 - self.betas[1] ** k)) + self.eps
            look = (1 - mu) * g / (1 - self.product)
            look += ahead * self.m[i] / (1 - self.product * ahead)
            self.theta[i] -= now.lr * look / root


class Lamb(AdamLike):
    """Adam's direction plus λ θ, in each of the given parts as long as θ is there."""

    def __init__(self, parts: Sequence[tuple[int, int]], kind: str = "none") -> None:
        super().__init__(kind)
        self.parts = parts

    def direction(self, m: Vector, u: Vector, count: int) -> Vector:
        adam = super().direction(m, u, count)
        r = [d + 0.01 * t for d, t in zip(adam, self.theta, strict=True)]
        for a, b in self.parts:
            ratio = math.sqrt(sum(t * t for t in self.theta[a:b]) / sum(x * x for x in r[a:b]))
            r[a:b] = [ratio * x for x in r[a:b]]
        return r


class RmsProp(Reference):
    def __init__(
        self,
        alpha: float = 0.99,
        eps: float = 1e-8,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(weight_decay)
        self.alpha, self.eps, self.momentum = alpha, eps, momentum

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.u, self.v = zeros(theta), zeros(theta)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        pushes = [self.decayed(push) for push in pushes]
        self.move(average([push.grad for push in pushes]), now)

    def move(self, grad: Vector, now: Now) -> None:
        for i, g in enumerate(grad):
            self.u[i] = self.alpha * self.u[i] + (1 - self.alpha) * g * g
            self.v[i] = self.momentum * self.v[i] + g / (math.sqrt(self.u[i]) + self.eps)
            self.theta[i] -= now.lr * self.v[i]


class AdaGrad(Reference):
    def __init__(self, eps: float = 1e-10, weight_decay: float = 0.0) -> None:
        super().__init__(weight_decay)
        self.eps = eps

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.u = zeros(theta)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        pushes = [self.decayed(push) for push in pushes]
        for i, g in enumerate(average([push.grad for push in pushes])):
            self.u[i] += g * g
            self.theta[i] -= now.lr * g / (math.sqrt(self.u[i]) + self.eps)


class DelayCompensatedAdam(AdamLike):
    """A composition that no paper has: g + λ g² (θ − view) in both of Adam's moments."""

    def __init__(self, lam: float) -> None:
        super().__init__()
        self.lam = lam

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        guessed = []
        for push in pushes:
            moved = zip(push.grad, self.theta, push.view, strict=True)
            grad = [g + self.lam * g * g * (t - w) for g, t, w in moved]
            guessed.append(push._replace(grad=grad))
        super().update(guessed, now)


class GapRmsProp(RmsProp):
    """A composition that no paper has: g/G drives RMSProp's momentum, g² its mean square; the gap
    is measured in RMSProp's own previous steps."""

    def start(self, theta: Vector) -> None:
        super().start(theta)
        self.gap = GapStatistics(None, 0.0, None)

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        self.gap.observe(self.v)
        penalised = []
        for push in pushes:
            penalty = self.gap.penalty(self.theta, push.view, now)
            penalised.append([g / big_g for g, big_g in zip(push.grad, penalty, strict=True)])
        raw, first = average([push.grad for push in pushes]), average(penalised)
        for i, g in enumerate(raw):
            self.u[i] = self.alpha * self.u[i] + (1 - self.alpha) * g * g
            step = first[i] / (math.sqrt(self.u[i]) + self.eps)
            self.v[i] = self.momentum * self.v[i] + step
            self.theta[i] -= now.lr * self.v[i]


class StalenessAdaGrad(AdaGrad):
    """A composition that no paper has: g/τ is stepped along, g² is added up."""

    def update(self, pushes: Sequence[Push], now: Now) -> None:
        penalised = [[g / (push.delay + 1) for g in push.grad] for push in pushes]
        first, raw = average(penalised), average([push.grad for push in pushes])
        for i, g in enumerate(raw):
            self.u[i] += g * g
            self.theta[i] -= now.lr * first[i] / (math.sqrt(self.u[i]) + self.eps)


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
