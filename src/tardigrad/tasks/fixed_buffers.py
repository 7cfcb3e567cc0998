"""Buffers that no one carries from gradient to gradient, so that a forward pass must leave them."""

from collections.abc import Collection

import torch
from torch import Tensor, nn


class FixedBuffers:
    """All of a module's but the running statistics, which travel with gradients.

    One that a forward pass changes (as spectral norm does) would make a gradient depend on those
    computed before it in the same process: no replay could repeat it. A cache that grows is left.
    """

    def __init__(self, module: nn.Module, carried: Collection[str]) -> None:
        self._places: list[tuple[nn.Module, str, str]] = []
        for at, layer in module.named_modules():
            for name, _ in layer.named_buffers(recurse=False):
                whole = f"{at}.{name}" if at else name
                if whole not in carried:
                    self._places.append((layer, name, whole))
        self._start = [layer.get_buffer(name).clone() for layer, name, _ in self._places]
        self._seen = self._now()

    def check(self) -> None:
        """Refuse what has changed."""
        now = self._now()
        if all(a is b and v == w for (a, v), (b, w) in zip(now, self._seen, strict=True)):
            return
        for (tensor, _), start, (_, _, name) in zip(now, self._start, self._places, strict=True):
            if tensor is None or tensor.shape != start.shape:
                continue
            if not torch.equal(tensor, start):
                raise ValueError(
                    f"the forward pass changes the buffer {name!r}, so a gradient depends on those "
                    "computed before it, and no run could be replayed: only BatchNorm's running "
                    "statistics are carried; leave out the layer, or what changes it"
                )
        self._seen = now

    def _now(self) -> list[tuple[Tensor | None, int]]:
        """Each with how often it was changed in place."""
        held = [layer._buffers.get(name) for layer, name, _ in self._places]
        return [(one, 0 if one is None else one._version) for one in held]
