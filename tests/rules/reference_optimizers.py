"""Slow twins of the adaptive optimizers, behind a penalty or none: plain floats and loops."""

import math
import struct
from collections.abc import Sequence

from tests.rules.reference_server import Now, Push, Reference, Vector, average, zeros
from tests.rules.references import GapStatistics


def single(x: float) -> float:
    """Rounded to single precision."""
    return float(struct.unpack("f", struct.pack("f", x))[0])


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
