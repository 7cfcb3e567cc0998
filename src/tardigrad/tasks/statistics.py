"""BatchNorm's running statistics, taken out of the module so that they can be folded in order.

A worker's forward pass must not change what others see, so the batch's mean and unbiased variance
travel with the gradient and are folded when it is applied:

    running ← (1 − momentum)·running + momentum·batch

To get them out without hooks (which `torch.func` would not see) each layer's momentum is set to 1
and its running buffers to zero before the forward pass; afterwards they hold the batch's own.
"""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm


class BatchNormStatistics:
    """The running statistics of a module's BatchNorm layers, in module order.

    *Running* buffers are (mean, variance, count) per layer; a *batch*'s are (mean, variance).
    """

    def __init__(self, module: nn.Module) -> None:
        self._layers: list[_BatchNorm] = []
        self._momenta: list[float | None] = []
        self._start: list[Tensor] = []
        self.names: list[str] = []
        self.buffer_names: list[str] = []
        """Of running buffers, in their order, in the module's state."""
        for name, layer in module.named_modules():
            if isinstance(layer, _InstanceNorm) and layer.track_running_stats:
                raise ValueError(
                    f"layer {name!r} is an InstanceNorm with track_running_stats=True, whose "
                    "statistics tardigrad does not carry: use track_running_stats=False"
                )
            if not isinstance(layer, _BatchNorm) or layer.running_mean is None:
                continue
            assert layer.running_var is not None
            assert layer.num_batches_tracked is not None
            self._layers.append(layer)
            self._momenta.append(layer.momentum)
            self._start += [
                layer.running_mean.clone(),
                layer.running_var.clone(),
                layer.num_batches_tracked.clone(),
            ]
            at = f"{name}." if name else ""
            self.names += [f"{at}running_mean", f"{at}running_var"]
            self.buffer_names += [*self.names[-2:], f"{at}num_batches_tracked"]
            layer.momentum = 1.0
            layer.num_batches_tracked = None  # counted in fold, not in the forward pass

    def __bool__(self) -> bool:
        return bool(self._layers)

    def start(self) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in self._start)

    def zeros(self) -> tuple[Tensor, ...]:
        """What the forward pass fills with the batch's statistics, in the order of `names`."""
        return tuple(tensor.new_zeros(tensor.shape) for tensor in self._running())

    def clear(self) -> None:
        """Before a forward pass."""
        if self._layers:
            torch._foreach_zero_(self._running())

    def taken(self) -> tuple[Tensor, ...]:
        """After a forward pass: a copy of the batch's statistics."""
        return tuple(tensor.clone() for tensor in self._running())

    def put(self, buffers: tuple[Tensor, ...]) -> None:
        """Place running statistics in the module, for evaluation."""
        if len(buffers) != len(self._start):
            raise ValueError(
                f"this model has {len(self._start)} running buffers, got {len(buffers)}: "
                "pass task.start_buffers() or what task.fold returned"
            )
        for i, layer in enumerate(self._layers):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            layer.running_mean.copy_(buffers[3 * i])
            layer.running_var.copy_(buffers[3 * i + 1])

    def restore(self, module: nn.Module, buffers: tuple[Tensor, ...]) -> None:
        """Make a copy of the module what it would be outside: layers that keep their own running
        statistics, which are these."""
        layers = [layer for layer in module.modules() if isinstance(layer, _BatchNorm)]
        kept = [layer for layer in layers if layer.running_mean is not None]
        for i, (layer, momentum) in enumerate(zip(kept, self._momenta, strict=True)):
            mean, variance, count = buffers[3 * i : 3 * i + 3]
            layer.momentum = momentum
            layer.running_mean, layer.running_var = mean.clone(), variance.clone()
            layer.num_batches_tracked = count.clone()

    def fold(self, buffers: tuple[Tensor, ...], batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """New running buffers; momentum None means the plain average, as in torch."""
        out: list[Tensor] = []
        for i, momentum in enumerate(self._momenta):
            count = buffers[3 * i + 2] + 1
            weight = 1.0 / count.item() if momentum is None else momentum
            for running, new in zip(buffers[3 * i : 3 * i + 2], batch[2 * i :], strict=False):
                out.append((1 - weight) * running + weight * new)
            out.append(count)
        return tuple(out)

    @property
    def shared_momentum(self) -> float | None:
        """The one momentum of all layers, or None."""
        return self._momenta[0] if len(set(self._momenta)) == 1 else None

    def _running(self) -> list[Tensor]:
        out: list[Tensor] = []
        for layer in self._layers:
            assert layer.running_mean is not None
            assert layer.running_var is not None
            out += [layer.running_mean, layer.running_var]
        return out
