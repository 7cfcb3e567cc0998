"""Muon: steps along orthogonal matrices, in torch's form; AdamW for what is no matrix."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from tardigrad.core.checks import count, fraction, one_of, positive, require
from tardigrad.core.layout import Layout
from tardigrad.rules.adam import Adam, AdamState, check_betas
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate
from tardigrad.rules.rates import Rate
from tardigrad.rules.rule import Rule

COEFFICIENTS = (3.4445, -4.775, 2.0315)


class MuonState(NamedTuple):
    momentum: Tensor
    """B, of all matrices one after another."""
    adam: AdamState
    """Of all that is no matrix."""


@dataclass(frozen=True)
class Muon(Optimizer[MuonState, Nothing]):
    """Matrices: B ← μ B + (1−μ) g; θ ← θ − η r NS(μ B + (1−μ) g). All else: Adam.

    NS makes all singular values of a matrix about 1: X ← X / ‖X‖, then, `ns_steps` times,
    X ← a X + (b A + c A²) X with A = X Xᵀ. A tall matrix is transposed for it.
    r = √max(1, rows / columns), or 0.2 √max(rows, columns) with adjust_lr="match_rms_adamw".

    Args:
        momentum: μ.
        nesterov: NS of μ B + (1−μ) g rather than of B.
        ns_coefficients: a, b and c.
        ns_steps: how many times; fewer than 100.
        eps: ‖X‖ is at least this.
        adjust_lr: r, as told above; the second suits rates that were found for AdamW.
        precision: of NS: "bfloat16", as torch computes it whatever the parameters are, or their
            own ("full").
        betas: Adam's, of what is no matrix.
        adam_eps: Adam's ε.
        adam_lr: Adam's rate, as a multiple of η.

    With one worker it equals `torch.optim.Muon` and, on what is no matrix, `torch.optim.AdamW`, bit
    for bit. Under staleness B and m take the penalised gradient, and u the raw one.

    Departure: B holds means where Jordan's text has sums, as torch's does; NS is the same of both.
    Traps: a matrix is a tensor of two dimensions. So embeddings and last layers are matrices here,
    for which the author advises AdamW, and kernels of convolutions are not. Whole tensors must lie
    on one shard: shard_by="tensor". A push's size is lost in NS, so that a penalty on the gradient
    does nothing but change its share in B; one on the step (`DelayAdaptive`) keeps its meaning.

    Jordan et al. 2024, Muon: An optimizer for hidden layers in neural networks; Liu et al. 2025,
    Muon is Scalable for LLM Training, for adjust_lr="match_rms_adamw".
    """

    momentum: float = 0.95
    nesterov: bool = True
    ns_coefficients: tuple[float, float, float] = COEFFICIENTS
    ns_steps: int = 5
    eps: float = 1e-7
    adjust_lr: Literal["original", "match_rms_adamw"] = "original"
    precision: Literal["bfloat16", "full"] = "bfloat16"
    betas: tuple[float, float] = (0.9, 0.999)
    adam_eps: float = 1e-8
    adam_lr: float = 1.0

    scope = "tensor"
    takes_means = True
    adds = True

    def __post_init__(self) -> None:
        fraction("momentum", self.momentum)
        require(
            isinstance(self.ns_coefficients, tuple | list) and len(self.ns_coefficients) == 3,
            f"ns_coefficients must be three numbers such as {COEFFICIENTS}, "
            f"got {self.ns_coefficients!r}",
        )
        object.__setattr__(self, "ns_coefficients", tuple(self.ns_coefficients))
        count("ns_steps", self.ns_steps)
        require(self.ns_steps < 100, f"ns_steps must be below 100, got {self.ns_steps}")
        positive("eps", self.eps)
        one_of("adjust_lr", self.adjust_lr, ("original", "match_rms_adamw"))
        one_of("precision", self.precision, ("bfloat16", "full"))
        object.__setattr__(self, "betas", check_betas(self.betas, self.adam_eps))
        positive("adam_lr", self.adam_lr)

    def start(self, theta: Tensor, layout: Layout) -> MuonState:
        matrices, rest = _parted(theta, layout)
        return MuonState(torch.zeros_like(matrices), self._adam.start(rest, layout))

    def host(self, count: int) -> tuple[float, ...]:
        return self._adam.host(count)

    def step(
        self,
        theta: Tensor,
        state: MuonState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, MuonState, tuple[Nothing, ...]]:
        signal = combine(signals)
        lr = rate(signal, now)
        matrices, rest = _parted(theta, layout)
        grad, rest_grad = _parted(signal.first, layout)
        momentum = torch.lerp(state.momentum, grad, 1 - self.momentum)
        along = torch.lerp(grad, momentum, self.momentum) if self.nesterov else momentum
        moved, begin = [], 0
        for shape in filter(_is_matrix, layout.shapes):
            part = slice(begin, begin + math.prod(shape))
            direction = self._orthogonal(along[part].view(shape)).to(theta.dtype).reshape(-1)
            moved.append(torch.addcmul(matrices[part], direction, -(lr * self._ratio(*shape))))
            begin = part.stop
        rest, adam, _ = self._adam.step(
            rest,
            state.adam,
            (),
            (),
            [Signal(rest_grad, _parted(signal.raw, layout)[1])],
            now._replace(lr=lr * self.adam_lr),
            layout,
        )
        return _joined(moved, rest, layout), MuonState(momentum, adam), tuple(owns)

    @property
    def _adam(self) -> Adam:
        return Adam(self.betas, self.adam_eps)

    def _ratio(self, rows: int, columns: int) -> float:
        if self.adjust_lr == "original":
            return math.sqrt(max(1, rows / columns))
        return 0.2 * math.sqrt(max(rows, columns))

    def _orthogonal(self, matrix: Tensor) -> Tensor:
        """As torch's, operation by operation, so that it rounds as torch does."""
        a, b, c = self.ns_coefficients
        tall = matrix.shape[0] > matrix.shape[1]
        x = matrix.bfloat16() if self.precision == "bfloat16" else matrix
        x = x.T if tall else x
        x = x / x.norm().clamp(min=self.eps)
        for _ in range(self.ns_steps):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return x.T if tall else x


def muon(
    lr: Rate,
    momentum: float = 0.95,
    nesterov: bool = True,
    ns_coefficients: tuple[float, float, float] = COEFFICIENTS,
    ns_steps: int = 5,
    eps: float = 1e-7,
    adjust_lr: Literal["original", "match_rms_adamw"] = "original",
    precision: Literal["bfloat16", "full"] = "bfloat16",
    betas: tuple[float, float] = (0.9, 0.999),
    adam_eps: float = 1e-8,
    adam_lr: float = 1.0,
    weight_decay: float = 0.1,
    no_decay: tuple[str, ...] = (),
) -> Rule:
    """B ← μ B + (1−μ) g; θ ← (1 − η wd) θ − η r NS(μ B + (1−μ) g), for matrices; else as `adamw`

    Jordan et al. 2024; NS and r are told at `Muon`. As `torch.optim.Muon` and, for all that is no
    matrix, `torch.optim.AdamW`. It wants shards of whole tensors.

    Args:
        weight_decay: wd: θ shrinks by 1 − η wd before each step.
    """
    optimizer = Muon(
        momentum,
        nesterov,
        ns_coefficients,
        ns_steps,
        eps,
        adjust_lr,
        precision,
        betas,
        adam_eps,
        adam_lr,
    )
    return Rule(lr, optimizer, weight_decay=weight_decay, decoupled=True, no_decay=no_decay)


def _is_matrix(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2


def _parted(vector: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
    """All matrices one after another, and all the others."""
    parts: tuple[list[Tensor], list[Tensor]] = [vector.new_empty(0)], [vector.new_empty(0)]
    for shape, begin, size in zip(layout.shapes, layout.offsets, layout.sizes, strict=False):
        parts[not _is_matrix(shape)].append(vector[begin : begin + size])
    return torch.cat(parts[0]), torch.cat(parts[1])


def _joined(matrices: list[Tensor], rest: Tensor, layout: Layout) -> Tensor:
    """The flat vector again, in the layout's order."""
    moved, out, begin = iter(matrices), [], 0
    for shape, size in zip(layout.shapes, layout.sizes, strict=True):
        if _is_matrix(shape):
            out.append(next(moved))
        else:
            out.append(rest[begin : begin + size])
            begin += size
    return torch.cat(out)
