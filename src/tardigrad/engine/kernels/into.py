"""An update that makes what is sent in memory of the caller's, without the rule knowing.

Rules make new tensors and know nothing of memory. A shard that shares memory with its workers would
have to copy each version there, which costs plain SGD half as much again as its update. So the
rule's own operations, as `graph` traces them, are called one by one, and the one that makes what is
sent is told where to write. They are torch's, of the same arguments in the same order: the bits are
those of `Rule.apply` and `Rule.send`.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx

from tardigrad.core.trees import leaves, rebuilt
from tardigrad.engine.kernels.graph import update_graph
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Now, Push, Rule, RuleOwn, RuleState

Updated = tuple[Tensor, RuleState, RuleOwn, Tensor]
"""θ, the state, the worker's own rows and what is sent."""
UpdateInto = Callable[[Tensor, RuleState, RuleOwn, Push, Now, Tensor], Updated]


def update_into(rule: Rule, dtype: torch.dtype) -> UpdateInto | None:
    """Of one gradient, the last argument being where what is sent is made; None where the rule was
    not found to treat each parameter alone, or its last operation cannot be told where to write."""
    try:
        graph = update_graph(rule, dtype).graph
    except Unsuited:
        return None
    (output,) = [node for node in graph.graph.nodes if node.op == "output"]
    sent = output.args[0][-1]
    writes = _writing(sent.target) if sent.op == "call_function" else None
    if writes is None or sent.meta["val"].dtype != dtype or not sent.meta["val"].dim():
        return None
    with graph.graph.inserting_before(next(iter(graph.graph.nodes))):
        place = graph.graph.placeholder("place")
    sent.target, sent.kwargs = writes, {**sent.kwargs, "out": place}
    graph.graph.set_codegen(fx.graph.CodeGen())  # takes its inputs one by one, not in lists
    graph.recompile()

    def update(
        theta: Tensor, state: RuleState, own: RuleOwn, push: Push, now: Now, out: Tensor
    ) -> Updated:
        states, rows = leaves(state), leaves(own)
        kept = [place for place, tensor in enumerate(states) if tensor.numel()]
        vectors = [theta, push.grad, push.view, *(states[place] for place in kept), *rows]
        new_theta, *after = graph.forward(out, *vectors, push.staleness, *leaves(now))
        for place, tensor in zip(kept, after, strict=False):
            states[place] = tensor
        return new_theta, rebuilt(state, states), rebuilt(own, after[len(kept) :]), after[-1]

    return update


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
