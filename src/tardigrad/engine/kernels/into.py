"""An update that makes what is sent in memory of the caller's, without the rule knowing.

Rules make new tensors and know nothing of memory. A shard that shares memory with its workers would
have to copy each version there, which costs plain SGD half as much again as its update. So the
rule's own operations, as `graph` traces them, are called one by one, and the one that makes what is
sent is told where to write. They are torch's, of the same arguments in the same order: the bits are
those of `Rule.apply` and `Rule.send`.

Large vectors are gone through in blocks where the rule makes more than what it returns: what an
operation has made is still in the cache when the next one reads it.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, fx

from tardigrad.core.trees import leaves, rebuilt
from tardigrad.engine.kernels.graph import update_graph
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Now, Push, Rule, RuleOwn, RuleState

BLOCK = 1 << 17
"""Numbers. A multiple of what processors compute at once, so that only the last block has a rest,
the same as the whole vector: numbers of a rest may be computed otherwise."""
WORTH_BLOCKS = 1 << 21
"""Numbers from which on blocks are faster (one thread, 10M: Gap-Aware 30 ms instead of 43, FASGD 32
instead of 42). Before, what calls of operations take is as much."""
FEW = 3
"""So many operations on vectors are faster without blocks: plain SGD has one, momentum three."""

Updated = tuple[Tensor, RuleState, RuleOwn, Tensor]
"""θ, the state, the worker's own rows and what is sent."""


class UpdateInto:
    """An update of one gradient.

    Of a rule without numbers in its state, to take the state apart would cost as much as the rest:
    the vectors of the last one are kept, and what has no vectors stays as it is.
    """

    def __init__(self, graph: fx.GraphModule, states: int, owns: int) -> None:
        self._forward = graph.forward
        calls = [node.meta["val"] for node in graph.graph.nodes if node.op == "call_function"]
        self._in_parts = sum(made.dim() > 0 for made in calls) > FEW
        self._states, self._owns = states, owns
        self._last: tuple[RuleState, list[Tensor]] | None = None

    def __call__(
        self, theta: Tensor, state: RuleState, own: RuleOwn, push: Push, now: Now, out: Tensor
    ) -> Updated:
        """out: where what is sent is made."""
        states = self._last[1] if self._last and self._last[0] is state else leaves(state)
        rows = leaves(own) if self._owns else []
        vectors = [push.grad, push.view, *(t for t in states if t.numel()), *rows]
        scalars = push.staleness, now.lr, now.lr_max, *now.correction, *now.optimizer
        # With several threads torch divides each operation among them, larger ones than blocks.
        if self._in_parts and len(theta) >= WORTH_BLOCKS and torch.get_num_threads() == 1:
            made = self.in_blocks([out, theta, *vectors], scalars)
        else:
            made = self._forward(out, theta, *vectors, *scalars)
        if self._states:
            after = iter(made[1 : 1 + self._states])
            states = [next(after) if tensor.numel() else tensor for tensor in states]
            state = rebuilt(state, states)
        self._last = state, states
        if self._owns:
            own = rebuilt(own, made[1 + self._states : -1])
        return made[0], state, own, made[-1]

    def in_blocks(self, inputs: Sequence[Tensor], scalars: Sequence[Tensor]) -> list[Tensor]:
        """The same, where every parameter is treated alone, but for what is one number."""
        out, whole, parts = inputs[0], list[Tensor](), list[Iterator[Tensor]]()
        for blocks in zip(*map(_blocks, inputs), strict=False):
            made = self._forward(*blocks, *scalars)
            if not whole:
                whole = [_room(one, out, blocks[0]) for one in made]
                parts = [_blocks(one) for one in whole]
            for one, part in zip(made, map(next, parts), strict=True):
                if one is not blocks[0] and one.dim():
                    part.copy_(one)
        return whole


def _blocks(vector: Tensor) -> Iterator[Tensor]:
    return iter(torch.split(vector, BLOCK)) if vector.dim() else repeat(vector)


def _room(one: Tensor, out: Tensor, in_place: Tensor) -> Tensor:
    """For all that a block's result is a part of."""
    if one is in_place:
        return out
    return one.new_empty(len(out)) if one.dim() else one


def update_into(rule: Rule, dtype: torch.dtype) -> UpdateInto | None:
    """None where the rule was not found to treat each parameter alone, an operation of it changes
    a tensor in place, or its last operation cannot be told where to write."""
    try:
        graph, states, owns = update_graph(rule, dtype)
    except Unsuited:
        return None
    nodes = list(graph.graph.nodes)
    sent = nodes[-1].args[0][-1]
    writes = _writing(sent.target) if sent.op == "call_function" else None
    if writes is None or sent.meta["val"].dtype != dtype or not sent.meta["val"].dim():
        return None
    if any(node.op == "call_function" and node.target._schema.is_mutable for node in nodes):
        return None
    with graph.graph.inserting_before(nodes[0]):
        place = graph.graph.placeholder("place")
    sent.target, sent.kwargs = writes, {**sent.kwargs, "out": place}
    graph.graph.set_codegen(fx.graph.CodeGen())  # takes its inputs one by one, not in lists
    graph.recompile()
    return UpdateInto(graph, states, owns)


def _writing(operation: Any) -> Any:
    """The same operation, told where to write; None where torch has none."""
    packet = getattr(operation, "overloadpacket", None)
    for name in packet.overloads() if packet else ():
        overload = getattr(packet, name)
        given = [a for a in overload._schema.arguments if not a.is_out]
        if len(given) + 1 == len(overload._schema.arguments) and _alike(given, operation):
            return overload
    return None


def _alike(given: list[Any], operation: Any) -> bool:
    wanted = operation._schema.arguments
    return [(a.name, str(a.type)) for a in given] == [(a.name, str(a.type)) for a in wanted]
