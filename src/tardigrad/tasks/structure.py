"""What is known of a model from its layers alone, without running it.

Two questions are asked: may its forward pass draw random numbers, and can the samples of a batch
influence each other? Trying a few batches answers neither: a class that is rare, or a branch that
is seldom taken, is not among them. So a model is *known* where each of its parts is of one of the
types listed here (not of a subclass, which may do anything), has no hooks and has its class's
forward pass.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from torch import nn

Layer = TypeVar("Layer", bound=type[nn.Module])
Apart = Callable[[Any, int], int | None]
"""(layer, dimensions of its inputs, the batch's included) -> those of its outputs, where each
sample's output depends on that sample's input alone; None where that is not known."""

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def known_layer(takes: int, gives: int) -> Callable[[Layer], Layer]:
    """Declares a module class of the project's own: its forward pass draws nothing but through its
    layers, and keeps samples apart if these do. `takes` and `gives` are the dimensions of inputs
    and outputs. It holds for this class, not for those derived from it."""

    def apart(module: nn.Module, dims: int) -> int | None:
        if dims != takes or _each_apart(module, max(takes, gives)) is None:
            return None
        return gives

    def declare(kind: Layer) -> Layer:
        _KNOWN[kind] = apart
        return kind

    return declare


def is_known(module: nn.Module) -> bool:
    """Whether the code of all its parts is known."""
    return all(type(part) in _KNOWN and is_plain(part) for part in module.modules())


def is_plain(module: nn.Module) -> bool:
    """Whether it does what its class says: no hooks, no forward pass put in its place."""
    return "forward" not in vars(module) and not any(getattr(module, hooks) for hooks in HOOKS)


def has_random_layers(module: nn.Module) -> bool:
    """Whether a layer draws random numbers in training."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            return True
        if isinstance(layer, nn.MultiheadAttention | nn.RNNBase) and layer.dropout > 0:
            return True
        if isinstance(layer, nn.RReLU):
            return True
    return False


def keeps_samples_apart(module: nn.Module, dims: int) -> int | None:
    """The dimensions of the outputs for inputs of `dims`, where it is known that samples do not
    influence each other, whatever the size of the batch; else None."""
    return _apart(module, dims) if is_known(module) else None


def _apart(module: nn.Module, dims: int) -> int | None:
    return _KNOWN[type(module)](module, dims)


def _each_apart(module: nn.Module, dims: int) -> int | None:
    """`dims`, where every child keeps samples apart in inputs of so many dimensions."""
    return None if any(_apart(child, dims) is None for child in module.children()) else dims


def _in_turn(layers: nn.Sequential, dims: int) -> int | None:
    now: int | None = dims
    for layer in layers:
        now = None if now is None else _apart(layer, now)
    return now


def _always(layer: nn.Module, dims: int) -> int | None:
    return dims


def _never(layer: nn.Module, dims: int) -> int | None:
    return None


def _without_draws(layer: nn.modules.dropout._DropoutNd, dims: int) -> int | None:
    return dims if layer.p == 0 else None


def _with_features(layer: nn.Module, dims: int) -> int | None:
    """Acts on features, so a sample must have some: of one dimension, the batch would be them."""
    return dims if dims >= 2 else None


def _over_one(layer: nn.Softmax | nn.LogSoftmax | nn.Softmin, dims: int) -> int | None:
    """Normalises over one dimension, which must not be the batch's."""
    over = layer.dim
    return dims if over is not None and over not in (0, -dims) else None


def _over_last(layer: nn.LayerNorm | nn.RMSNorm, dims: int) -> int | None:
    return dims if len(layer.normalized_shape) < dims else None


def _flattened(layer: nn.Flatten, dims: int) -> int | None:
    within = 1 <= layer.start_dim < dims and layer.end_dim == -1
    return layer.start_dim + 1 if within else None


def _looked_up(layer: nn.Embedding, dims: int) -> int | None:
    # The first changes the table, the second weighs gradients by what else is in the batch.
    shared = layer.max_norm is not None or layer.scale_grad_by_freq
    return None if shared else dims + 1


def _over_space(space: int) -> Apart:
    """Convolutions and pooling; without a batch's dimension torch takes the first for channels."""
    return lambda layer, dims: dims if dims == space + 2 else None


_KNOWN: dict[type[nn.Module], Apart] = {
    nn.Sequential: _in_turn,
    nn.ModuleList: _each_apart,
    nn.Flatten: _flattened,
    nn.Embedding: _looked_up,
    **dict.fromkeys(
        (nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU), _always
    ),
    **dict.fromkeys(
        (nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign, nn.Tanh, nn.Tanhshrink, nn.Sigmoid), _always
    ),
    **dict.fromkeys((nn.LogSigmoid, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish), _always),
    **dict.fromkeys((nn.Linear, nn.PReLU, nn.GroupNorm), _with_features),
    **dict.fromkeys((nn.Softmax, nn.LogSoftmax, nn.Softmin), _over_one),
    **dict.fromkeys((nn.LayerNorm, nn.RMSNorm), _over_last),
    **dict.fromkeys(
        (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout), _without_draws
    ),
    **dict.fromkeys((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), _never),
    **dict.fromkeys((nn.Conv1d, nn.MaxPool1d, nn.AvgPool1d), _over_space(1)),
    **dict.fromkeys((nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d), _over_space(2)),
    **dict.fromkeys((nn.Conv3d, nn.MaxPool3d, nn.AvgPool3d), _over_space(3)),
    **dict.fromkeys((nn.AdaptiveAvgPool1d, nn.AdaptiveMaxPool1d), _over_space(1)),
    **dict.fromkeys((nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d), _over_space(2)),
    **dict.fromkeys((nn.AdaptiveAvgPool3d, nn.AdaptiveMaxPool3d), _over_space(3)),
}
