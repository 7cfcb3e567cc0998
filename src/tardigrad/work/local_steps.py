"""Several steps of an optimizer of the worker's own, pushed as one."""

import inspect
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, optim

from tardigrad.core.checks import count, require
from tardigrad.core.layout import Layout
from tardigrad.rules import Optimizer, Push, Rule, RuleOwn, RuleState, mean, torch_optimizer
from tardigrad.rules.rates import Progress
from tardigrad.tasks import Gradient, Task, Turn
from tardigrad.work.clipping import check_clip_norm, clipped
from tardigrad.work.work import Delivery, Interrupted, Work, never


class LocalState(NamedTuple):
    """The inner optimizer's."""

    rule: RuleState
    own: RuleOwn
    age: Tensor
    """Steps since it began anew."""


@dataclass(frozen=True)
class LocalSteps(Work[Any]):
    """x ← view; `steps` times x ← inner step at x on the worker's next batch; push view − x.

    The server takes that difference for a gradient: with `sgd(1.0)` there it adds what workers have
    moved, with NAG (rate 0.7, momentum 0.9) and `Sync` it is DiLoCo.

    One step of SGD at rate 1 is `OneGradient`, and one worker under outer SGD at rate 1 is the
    plain inner loop, both to rounding: view − (view − g) is not g to the bit.

    Args:
        steps: H, the inner steps of a row.
        inner: a rule, such as rules.adamw(lr=4e-4), or a class of torch.optim, taken at its own
            rate. Its rate follows the worker's own count of steps.
        keep_state: whether the inner optimizer's state stays with the worker from row to row (as in
            HALoS), or begins anew with each (as in DeepMind's notebook). In a process that takes a
            dead worker's place it begins anew; a resumed run goes on with it.
        clip_norm: the gradient of each inner step is scaled down to this norm where it exceeds it,
            before the inner optimizer sees it (as in DiLoCo); what is pushed is the sum of steps,
            and is not clipped. None: never.
    """

    steps: int
    inner: Rule | type[optim.Optimizer]
    keep_state: bool = True
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        count("steps", self.steps)
        check_clip_norm(self.clip_norm)
        if not isinstance(self.inner, Rule):
            object.__setattr__(self, "inner", _at_its_own_rate(self.inner))
        optimizer = self.rule.optimizer
        require(
            type(optimizer).send is Optimizer.send,
            f"inner: {optimizer.called} looks ahead for workers that are late, and a worker's own "
            "steps are never late: use sgd or adamw",
        )
        require(
            self.rule.clip_norm is None,
            "inner: a rule does not clip, the work does: write "
            f"tg.LocalSteps(…, clip_norm={self.rule.clip_norm})",
        )
        require(
            self.rule.ema is None,
            "inner: nobody reads an average of a worker's own parameters: leave ema out of it, and "
            f"say ema={self.rule.ema} in the rule that the server applies",
        )

    @property
    def batches(self) -> int:
        return self.steps

    @property
    def rule(self) -> Rule:
        """The inner one."""
        assert isinstance(self.inner, Rule)
        return self.inner

    def check_names(self, layout: Layout) -> None:
        try:
            self.rule.check_names(layout)
        except ValueError as error:
            raise ValueError(f"inner: {error}") from None

    def start(self, task: Task, theta: Tensor) -> Any:
        return self._begin(task, theta) if self.keep_state else ()

    def _begin(self, task: Task, theta: Tensor) -> LocalState:
        rule, layout = self.rule, task.layout
        age = torch.zeros((), dtype=torch.int64)
        return LocalState(rule.start(theta, layout), rule.start_own(theta, layout), age)

    def run(
        self,
        task: Task,
        view: Tensor,
        state: Any,
        turn: Turn,
        batches: int,
        interrupted: Interrupted = never,
    ) -> Delivery[Any] | None:
        inner, own, age = state if self.keep_state else self._begin(task, view)
        rule, x, before = self.rule, view, int(age)
        losses: list[Tensor] = []
        buffers: tuple[Tensor, ...] = ()
        for k in range(batches):
            if k and interrupted():
                return None
            now_at = turn.later(k)
            loss, grad, found = task.gradient(x, now_at)
            made = Progress(now_at.step, now_at.step * task.batch_size, task.epoch_size)
            now = rule.scalars(made, age=before + k).tensors()
            push = Push(clipped(grad, self.clip_norm), x, _not_late())
            x, inner, (own,) = rule.apply(x, inner, (own,), (0,), (push,), now, task.layout)
            losses.append(loss)
            buffers += found
        after = LocalState(inner, own, age + batches) if self.keep_state else ()
        return Delivery(Gradient(mean(losses), view - x, buffers), after)


@lru_cache(maxsize=1)
def _not_late() -> Tensor:
    """Staleness of what was computed at the parameters themselves."""
    return torch.tensor(1.0, dtype=torch.float64)


def _at_its_own_rate(kind: type[optim.Optimizer]) -> Rule:
    require(
        isinstance(kind, type) and issubclass(kind, optim.Optimizer),
        f"inner must be a rule or a class such as torch.optim.AdamW, got {kind!r}",
    )
    default = inspect.signature(kind).parameters.get("lr")
    lr = None if default is None else default.default
    require(
        isinstance(lr, int | float),
        f"{kind.__name__} has no rate of its own: write "
        f"inner=tg.rules.torch_optimizer(torch.optim.{kind.__name__}, 0.1)",
    )
    assert isinstance(lr, int | float)
    return torch_optimizer(kind, lr)
