"""How a model is called with its samples, and where the loss comes from."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from tardigrad.core.checks import nearest, require
from tardigrad.tasks.losses import Loss, loss_function
from tardigrad.tasks.samples import Samples, tensors_in
from tardigrad.tasks.split import Split

MODEL = "model"
"""As a loss: the model's own."""
LABELS = "labels"
"""The parameter of the forward pass that takes the targets of a model with a loss of its own."""


class Objective:
    """The loss of a model's outputs.

    One tensor of inputs is the forward pass's first argument, a tuple its first ones, a dict its
    arguments by name. With loss="model" targets are its argument `labels`, and the loss is what it
    returns under that name, in a dict or an object.
    """

    def __init__(self, loss: str | Loss) -> None:
        own = isinstance(loss, str) and loss == MODEL
        self.function: Loss | None = None if own else loss_function(loss)
        self._name = loss if isinstance(loss, str) else None

    def __call__(
        self, model: Callable[..., Any], inputs: Samples, targets: Samples
    ) -> tuple[Any, Tensor]:
        """The model's outputs, and their loss."""
        args, named = arguments(inputs)
        if self.function is None:
            outputs = model(*args, **named, **({} if targets is None else {LABELS: targets}))
            loss = _loss_in(outputs)
        else:
            outputs = model(*args, **named)
            if self._name is not None and not isinstance(outputs, Tensor):
                raise ValueError(
                    f"loss {self._name!r} compares a tensor with the targets, but the model "
                    f"returns a {type(outputs).__name__}: use loss='model' where it has a loss of "
                    "its own, or a function such as lambda outputs, targets: "
                    "F.cross_entropy(outputs.logits, targets)"
                )
            loss = self.function(outputs, self._classes(targets))
        if not isinstance(loss, Tensor) or loss.dim() != 0:
            got = tuple(loss.shape) if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
            raise ValueError(
                f"loss must return a scalar, the mean over the batch, got shape {got}: "
                "use reduction='mean'"
            )
        return outputs, loss

    def _classes(self, targets: Samples) -> Samples:
        """Whole numbers of any type as the type that torch's losses of classes take."""
        if self._name in (None, "mse") or not isinstance(targets, Tensor):
            return targets
        return targets if targets.is_floating_point() else targets.long()

    def check(self, module: nn.Module, data: Split) -> None:
        """Refuse samples that the model's forward pass does not take, or that lack targets."""
        if self.function is not None:
            require(
                data.targets is not None,
                "there are samples without targets, which the loss compares outputs with: give "
                "(inputs, targets), or loss='model' where the model makes its loss of its inputs",
            )
        args, named = arguments(data.inputs)
        if self.function is None and data.targets is not None:
            named = {**named, LABELS: data.targets}
        try:
            signature = inspect.signature(module.forward)
        except (TypeError, ValueError):  # a compiled module's, which tells when it is called
            return
        name, parameters = type(module).__name__, signature.parameters
        kinds = inspect.Parameter
        known = [
            n
            for n, p in parameters.items()
            if p.kind not in (kinds.VAR_KEYWORD, kinds.VAR_POSITIONAL)
        ]
        for key in named if known else ():
            require(
                key in known,
                f"{name}.forward takes no {key!r}{nearest(key, known)}; it takes "
                f"{', '.join(known)}",
            )
        try:
            signature.bind(*args, **named)
        except TypeError as error:
            given = ", ".join(named) or f"{len(args)} tensors"
            raise ValueError(
                f"{name}.forward cannot be called with the inputs ({given}): {error}; it takes "
                f"{', '.join(known)}"
            ) from None


def arguments(inputs: Samples) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The forward pass's arguments, by place and by name."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return tuple(tensors_in(inputs)), {}


def _loss_in(outputs: Any) -> Any:
    found = outputs.get("loss") if isinstance(outputs, Mapping) else getattr(outputs, "loss", None)
    require(
        isinstance(found, Tensor),
        "loss='model' takes the loss that the model returns, but it returns a "
        f"{type(outputs).__name__} without one: give it the {LABELS} it asks for, as targets or "
        "among its inputs, or a loss function (outputs, targets) -> mean scalar",
    )
    return found
