"""Any optimizer of torch as the server's: stepped on copies, so that it is pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn, optim

from tardigrad.core.checks import require
from tardigrad.core.layout import Layout
from tardigrad.rules.parts import Nothing, Now, Optimizer, Signal, combine, rate
from tardigrad.rules.rates import Rate
from tardigrad.rules.rule import Rule

ELEMENTWISE: tuple[type[optim.Optimizer], ...] = (
    optim.ASGD,
    optim.Adadelta,
    optim.Adagrad,
    optim.Adam,
    optim.AdamW,
    optim.Adamax,
    optim.NAdam,
    optim.RAdam,
    optim.RMSprop,
    optim.Rprop,
    optim.SGD,
)
"""Known to treat each parameter alone; of others it is taken that they look at whole tensors."""

REFUSED: dict[type[optim.Optimizer], str] = {
    optim.LBFGS: "evaluates the loss again and again within a step, and a server has gradients "
    "only: use torch.optim.Adam",
    optim.SparseAdam: "takes sparse gradients, and every push is a whole vector: use "
    "torch.optim.Adam",
}

Form = tuple[tuple[str, type[Any]], ...]
"""What is kept for one of the model's tensors: names and types."""


class TorchState(NamedTuple):
    """What torch's optimizer keeps, of each of the model's tensors in turn; numbers as tensors."""

    kept: tuple[Tensor, ...]


@dataclass(frozen=True)
class TorchOptimizer(Optimizer[TorchState, Nothing]):
    """`kind(params, lr=η, **options).step()`.

    η is the rule's rate, times a correction's penalty on the whole step. There is one gradient, the
    corrected one: moments do not take the raw one beside it, as `Adam` here does. With one worker
    it is torch's own step, bit for bit.

    What it keeps must be in its `state`: one that changes its groups' options in a step is refused.
    """

    kind: type[optim.Optimizer]
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        kind = self.kind
        require(
            isinstance(kind, type) and issubclass(kind, optim.Optimizer),
            f"optimizer must be a class such as torch.optim.NAdam, got {kind!r}",
        )
        for refused, why in REFUSED.items():
            require(not issubclass(kind, refused), f"torch.optim.{refused.__name__} {why}")
        require(
            "lr" not in dict(self.options) and "params" not in dict(self.options),
            "lr is the rule's, and params are the model's: leave them out of the options",
        )
        try:
            hash(self)
        except TypeError:
            raise ValueError(
                f"{kind.__name__}'s options must be plain values, got {dict(self.options)!r}"
            ) from None
        # How tensors are cut must not matter, or must not be.
        object.__setattr__(self, "scope", "parameter" if self._alone else "tensor")
        self._made([nn.Parameter(torch.ones(2, 2))], 0.1)

    @property
    def called(self) -> str:
        return self.kind.__name__

    @property
    def _alone(self) -> bool:
        return self.kind in ELEMENTWISE

    def start(self, theta: Tensor, layout: Layout) -> TorchState:
        stepper, params = self._on(theta, torch.zeros_like(theta), layout, 0.1)
        stepper.step()  # dry, so that it makes its state
        kept = [_tensor(value) for p in params for _, value in sorted(stepper.state[p].items())]
        return TorchState(tuple(torch.zeros_like(t) for t in kept))

    def host(self, count: int) -> tuple[float, ...]:
        return (float(count),)

    def step(
        self,
        theta: Tensor,
        state: TorchState,
        owns: Sequence[Nothing],
        slots: Sequence[int],
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> tuple[Tensor, TorchState, tuple[Nothing, ...]]:
        signal = combine(signals)
        stepper, params = self._on(theta, signal.first, layout, float(rate(signal, now)))
        forms = self._forms(theta, layout)
        if now.optimizer[0] != 1:  # at first it makes its state itself, which need not be zeros
            kept = iter(state.kept)
            for param, form in zip(params, forms, strict=True):
                stepper.state[param] = {name: _value(next(kept), of) for name, of in form}
        options = _options(stepper)
        stepper.step()
        require(
            [_form(stepper.state[p]) for p in params] == list(forms)
            and _options(stepper) == options,
            f"{self.kind.__name__} keeps something that changes outside of its state, or in its "
            "form, which a checkpoint could not hold: use another optimizer",
        )
        values = [_tensor(value) for p in params for _, value in sorted(stepper.state[p].items())]
        moved = torch.cat([param.detach().reshape(-1) for param in params])
        return moved, TorchState(tuple(values)), tuple(owns)

    def _forms(self, theta: Tensor, layout: Layout) -> tuple[Form, ...]:
        return _found_forms(self, layout, theta.dtype, theta.device)

    def _on(
        self, theta: Tensor, grad: Tensor, layout: Layout, lr: float
    ) -> tuple[optim.Optimizer, list[nn.Parameter]]:
        """The optimizer with copies of θ and its gradient; tensor by tensor where that matters."""
        if self._alone:
            pieces = [(theta, grad)]
        else:
            tensors = (layout.unflatten(vector).values() for vector in (theta, grad))
            pieces = list(zip(*tensors, strict=True))
        params = []
        for piece, slope in pieces:
            params.append(nn.Parameter(piece.detach().clone()))
            params[-1].grad = slope.detach().clone()
        return self._made(params, lr), params

    def _made(self, params: list[nn.Parameter], lr: float) -> optim.Optimizer:
        name = self.kind.__name__
        try:
            made: Any = self.kind
            stepper: optim.Optimizer = made(params, lr=lr, **dict(self.options))
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"{name} does not take this: {error}") from error
        return stepper


def torch_optimizer(optimizer: type[optim.Optimizer], /, lr: Rate, **options: Any) -> Rule:
    """Any class of torch.optim, or one derived from its Optimizer, as the server's rule.

    `options` are the class's own. LBFGS and SparseAdam are refused. Those that look at whole
    tensors (Muon, Adafactor, and all that are not torch's) want shards of whole tensors.
    """
    plain = {name: tuple(v) if isinstance(v, list) else v for name, v in options.items()}
    return Rule(lr, TorchOptimizer(optimizer, tuple(sorted(plain.items()))))


@lru_cache(maxsize=256)
def _found_forms(
    optimizer: TorchOptimizer, layout: Layout, dtype: torch.dtype, device: torch.device
) -> tuple[Form, ...]:
    theta = torch.ones(layout.size, dtype=dtype, device=device)
    stepper, params = optimizer._on(theta, torch.zeros_like(theta), layout, 0.1)
    stepper.step()
    return tuple(_form(stepper.state[param]) for param in params)


def _form(kept: Mapping[str, Any]) -> Form:
    return tuple((name, type(value)) for name, value in sorted(kept.items()))


def _tensor(value: Any) -> Tensor:
    """What can be saved: tensors, and numbers as tensors."""
    if isinstance(value, Tensor):
        return value.detach()
    if value is None:
        return torch.empty(0)
    require(
        isinstance(value, bool | int | float),
        f"the optimizer keeps a {type(value).__name__}, which a checkpoint cannot hold: use one "
        "that keeps tensors and numbers",
    )
    return torch.tensor(float(value), dtype=torch.float64)


def _value(kept: Tensor, of: type[Any]) -> Any:
    if issubclass(of, Tensor):
        return kept.clone()
    return None if of is type(None) else of(kept.item())


def _options(stepper: optim.Optimizer) -> list[dict[str, Any]]:
    return [{k: v for k, v in g.items() if k != "params"} for g in stepper.param_groups]
