"""A task given by a gradient function alone: no data set, no module."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from tardigrad.core import keys
from tardigrad.core.layout import Layout
from tardigrad.tasks.checks import check_parameters
from tardigrad.tasks.randomness import keyed
from tardigrad.tasks.task import SPLITS, Gradient, Turn

GradientFunction = Callable[[Tensor, int, int], Tensor | tuple[Tensor, Tensor]]
"""grad(view, worker, step): the flat gradient, or (loss, gradient)."""


class FunctionTask:
    """The task of following `grad(view, worker, step)` from `theta0`.

    `grad` returns the flat gradient, or `(loss, gradient)`. Where it returns no loss the loss is
    recorded as 0, and the run is called diverged once a gradient is not finite; give `evaluate` (a
    function of the parameters) to measure something.

    It must be a pure function of its arguments, but for what it draws: take randomness from
    `tardigrad.core.keys`, or from torch's, Python's and NumPy's generators, which are seeded by
    (`seed`, worker, step) around it and put back (some 30 µs). stochastic=False spares that, and
    then it must not draw from them.
    """

    batch_size = 1
    epoch_size = 0

    def __init__(
        self,
        theta0: Tensor,
        grad: GradientFunction,
        layout: Layout | None = None,
        evaluate: Callable[[Tensor], Mapping[str, float]] | None = None,
        *,
        seed: int = 0,
        stochastic: bool = True,
    ) -> None:
        if theta0.dim() != 1 or not theta0.is_floating_point():
            raise ValueError(
                f"theta0 must be a flat floating-point vector, got shape {tuple(theta0.shape)} of "
                f"{theta0.dtype}: pass theta0.reshape(-1).float()"
            )
        check_parameters(theta0)
        self.layout = Layout.flat(theta0.numel()) if layout is None else layout
        if self.layout.size != theta0.numel():
            raise ValueError(
                f"layout has {self.layout.size} parameters but theta0 has {theta0.numel()}: "
                "leave layout out, or make it with Layout.of(named tensors)"
            )
        self._theta0 = theta0.detach().clone()
        self._grad = grad
        self._evaluate = evaluate
        self.seed = seed
        self.stochastic = stochastic

    @property
    def splits(self) -> tuple[str, ...]:
        """All where it was given `evaluate`, which measures the same on each; else none."""
        return () if self._evaluate is None else SPLITS

    def start(self) -> Tensor:
        return self._theta0.clone()

    def gradient(self, view: Tensor, turn: Turn) -> Gradient:
        with self._drawing("gradient", turn.worker, turn.step):
            out = self._grad(view, turn.worker, turn.step)
        loss, grad = out if isinstance(out, tuple) else (view.new_zeros(()), out)
        like = isinstance(grad, Tensor) and all(
            getattr(grad, what) == getattr(view, what) for what in ("shape", "dtype", "layout")
        )
        if not like:
            got: object = type(grad)
            if isinstance(grad, Tensor):
                sparse = "" if grad.layout == view.layout else "sparse "
                got = f"{sparse}{grad.dtype} {tuple(grad.shape)}"
            raise ValueError(
                f"grad(view, worker={turn.worker}, step={turn.step}) must return a flat gradient "
                f"like its view, {view.dtype} {tuple(view.shape)}, but returned {got}"
            )
        loss = torch.as_tensor(loss, dtype=view.dtype, device=view.device).detach()
        if loss.dim() != 0:
            raise ValueError(
                f"grad returned a loss of shape {tuple(loss.shape)}: "
                "return (loss, gradient) with a scalar loss, such as losses.mean()"
            )
        return Gradient(loss, grad.detach())

    def gives_loss(self) -> bool:
        """Whether `grad` returns a loss; it is called to see, as worker 0 does first."""
        with self._drawing("gradient", 0, 0):
            return isinstance(self._grad(self.start(), 0, 0), tuple)

    def start_buffers(self) -> tuple[Tensor, ...]:
        return ()

    def fold(self, buffers: tuple[Tensor, ...], batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return buffers

    def evaluate(
        self, params: Tensor, buffers: tuple[Tensor, ...], split: str
    ) -> Mapping[str, float]:
        """What `evaluate` measures, whichever split is asked for: a function has no splits."""
        if self._evaluate is None:
            return {}
        with self._drawing("evaluation"):
            return self._evaluate(params)

    def _drawing(self, purpose: str, *ids: int) -> AbstractContextManager[object]:
        """Around what may draw random numbers."""
        if not self.stochastic:
            return nullcontext()
        return keyed(keys.key(self.seed, purpose, *ids), self._theta0.device)
