"""Traced gradients compiled for a CPU: what is done to the inputs alone, and the rest.

`torch.compile` looks before every call whether its compiled code still suits the arguments, which
takes some 50 µs: as long as a small gradient. The engine calls with one shape and type always, so
Inductor, which is what compiles underneath, is asked directly.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_flatten

from tardigrad.core.allocation import large_pages
from tardigrad.engine.fast.factored import with_factors
from tardigrad.engine.fast.input_prologue import keeps_elements_apart, made, split_off_prologue
from tardigrad.engine.fast.own_products import with_own_products
from tardigrad.engine.kernels.pieces import Factors, Pieces

FEW = 4
"""So many operations on inputs are torch's own: it makes floats of bytes 20 times faster than
Inductor's code, which takes bytes one by one, and a call of it costs less."""
AT_ONCE = 4096
"""Samples of a data set that are prepared at a time."""
BatchFound = tuple[Pieces, Tensor, tuple[Tensor, ...]]
"""Gradients, losses and statistics."""


class InTwoParts:
    """The traced function of (views, inputs, targets), compiled for tensors like `given`."""

    def __init__(self, traced: fx.GraphModule, given: Sequence[Tensor]) -> None:
        views, inputs, targets = given
        self._prologue, rest = split_off_prologue(traced, argument=1)
        values = (inputs,) if self._prologue is None else self._prologue(inputs)
        others = (*values, views, targets) if self._prologue else tuple(given)
        (output,) = [node for node in rest.graph.nodes if node.op == "output"]
        pieces, losses, statistics = output.args[0]
        pieces = with_factors(pieces)
        output.args = ((pieces, losses, statistics),)
        rest.graph.eliminate_dead_code()
        self._factored = [isinstance(piece, tuple) for piece in pieces]
        self._shapes = [node.meta["val"].shape for node in tree_flatten(pieces)[0]]
        self._dtype = views.dtype
        self._rest = _compiled(with_own_products(rest), others)
        self._prepared: Callable[[Tensor], Sequence[Tensor]] | None = self._prologue
        if self._prologue is not None and len(made(self._prologue)) > FEW:
            self._prepared = _compiled(self._prologue, (inputs,))

    def __call__(self, views: Tensor, inputs: Tensor, targets: Tensor) -> BatchFound:
        if self._prepared is None:
            return self._found(self._rest(views, inputs, targets))
        return self._found(self._rest(*self._prepared(inputs), views, targets))

    def of_prepared(self, views: Tensor, inputs: Tensor, targets: Tensor) -> BatchFound:
        """The same of samples of `prepared` inputs."""
        return self._found(self._rest(inputs, views, targets))

    def prepared(self, inputs: Tensor, most_bytes: int) -> Tensor | None:
        """What the function makes of a whole data set's inputs before they meet a parameter. None
        where that is nothing, is not the same for a sample whatever others are with it, or would
        take more than `most_bytes`."""
        if self._prologue is None or not keeps_elements_apart(self._prologue):
            return None
        (first,) = self._prologue(inputs[None, :1])
        if inputs.numel() * first.element_size() > most_bytes:
            return None
        whole = large_pages(first.new_empty(inputs.shape))
        for at in range(0, len(inputs), AT_ONCE):
            (values,) = self._prologue(inputs[None, at : at + AT_ONCE])
            whole[at : at + AT_ONCE] = values[0]
        return whole

    def no_gradients(self) -> Pieces:
        """Zeros where a call gives gradients."""
        return self._pieces(iter([torch.zeros(shape, dtype=self._dtype) for shape in self._shapes]))

    def _pieces(self, flat: Iterator[Tensor]) -> Pieces:
        return tuple(
            Factors(next(flat), next(flat).contiguous()) if factored else next(flat)
            for factored in self._factored
        )

    def _found(self, flat: Sequence[Tensor]) -> BatchFound:
        left = iter(flat)
        return self._pieces(left), next(left), tuple(left)


def _compiled(graph: fx.GraphModule, given: Sequence[Tensor]) -> Callable[..., Any]:
    """By Inductor, which takes functions whose output is a flat tuple."""
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    output.args = (tuple(tree_flatten(output.args[0])[0]),)
    graph.recompile()
    function: Callable[..., Any] = torch._inductor.compile(graph, list(given))
    return function
