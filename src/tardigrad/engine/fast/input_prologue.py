"""What a model does to its inputs before they meet a parameter, as a function of its own.

A compiler that sees a whole gradient fuses such work (bytes made floats, pixels normalised) into
the first loop that reads it. With one sample that loop is the first layer's product, and the work
is done again for every output: 200 times in a layer of 200. Here it is taken out, so that it is
done once per batch.
"""

from typing import Any, NamedTuple

import torch
from torch import fx

ATEN = torch.ops.aten
VIEWS = {
    ATEN.view.default,
    ATEN._unsafe_view.default,
    ATEN.reshape.default,
    ATEN.permute.default,
    ATEN.transpose.int,
    ATEN.t.default,
    ATEN.expand.default,
    ATEN.unsqueeze.default,
    ATEN.squeeze.dim,
    ATEN.squeeze.default,
    ATEN.slice.Tensor,
    ATEN.select.int,
    ATEN.detach.default,
    ATEN.alias.default,
}
"""Operations that move nothing: they are left to the compiler."""

_COPIES = {ATEN._to_copy.default, ATEN.clone.default}


class Parts(NamedTuple):
    """`rest(*values, *others)` of `values = prologue(x)` is the whole; None where nothing is done
    to x alone."""

    prologue: fx.GraphModule | None
    rest: fx.GraphModule


def split_off_prologue(whole: fx.GraphModule, argument: int) -> Parts:
    """Cut a traced function at what it makes of its `argument`-th argument x alone.

    `rest` takes those values in place of x, first, and then the other arguments in order. Values
    larger than x itself (one-hot vectors) are left where they are used: writing them down costs
    more than it saves. So is all of a function that changes tensors in place.
    """
    nodes = list(whole.graph.nodes)
    arguments = [node for node in nodes if node.op == "placeholder"]
    x = arguments[argument]
    if any(_changes_or_draws(node) for node in nodes):
        return Parts(None, whole)
    early = _made_of(x, nodes)
    roots = {_root(node) for node in early if not set(node.users) <= early}
    if roots <= {x}:
        return Parts(None, whole)
    values = [node for node in nodes if node in roots]
    others = [node for node in arguments if node is not x]
    output = nodes[-1].args[0]
    return Parts(_between(whole, [x], tuple(values)), _between(whole, [*values, *others], output))


def made(part: fx.GraphModule) -> list[fx.Node]:
    """Its operations that make something."""
    return [n for n in part.graph.nodes if n.op == "call_function" and n.target not in VIEWS]


def keeps_elements_apart(prologue: fx.GraphModule) -> bool:
    """Whether it makes one value of x, each element of it from that element of x alone and in the
    same way whichever row it stands in (the first two dimensions): then it may as well be done to a
    whole data set."""
    (x,) = [node for node in prologue.graph.nodes if node.op == "placeholder"]
    (output,) = [node for node in prologue.graph.nodes if node.op == "output"]
    if len(output.args[0]) != 1:
        return False
    shape = x.meta["val"].shape
    apart = {x}
    for node in prologue.graph.nodes:
        if node.op == "get_attr":
            if getattr(prologue, str(node.target)).dim() > len(shape) - 2:
                return False
        elif node.op == "call_function":
            one_by_one = torch.Tag.pointwise in node.target.tags or node.target in _COPIES
            if not one_by_one or node.meta["val"].shape != shape:
                return False
            apart.add(node)
    return output.args[0][0] in apart


def _changes_or_draws(node: fx.Node) -> bool:
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    return node.target._schema.is_mutable or torch.Tag.nondeterministic_seeded in node.target.tags


def _made_of(x: fx.Node, nodes: list[fx.Node]) -> set[fx.Node]:
    """x, and what depends on x and on no other argument and is no larger than x."""
    constant: set[fx.Node] = set()
    early = {x}
    for node in nodes:
        if node.op == "get_attr":
            constant.add(node)
        elif node.op == "call_function":
            needed = set(node.all_input_nodes)
            value = node.meta.get("val")
            if needed <= constant:
                constant.add(node)
            elif (
                needed <= constant | early
                and isinstance(value, torch.Tensor)
                and value.numel() <= x.meta["val"].numel()
            ):
                early.add(node)
    return early


def _root(node: fx.Node) -> fx.Node:
    """What a chain of views is a view of."""
    while node.target in VIEWS:
        node = node.all_input_nodes[0]
    return node


def _between(whole: fx.GraphModule, given: list[fx.Node], output: Any) -> fx.GraphModule:
    """The part of the function that makes `output` out of the values of `given`."""
    graph = fx.Graph()
    copies = {node: graph.placeholder(f"given_{i}") for i, node in enumerate(given)}
    for node, copy in copies.items():
        copy.meta = dict(node.meta)
    needed = _needed(output, set(given))
    for node in whole.graph.nodes:
        if node in needed:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(fx.node.map_arg(output, copies.__getitem__))
    return fx.GraphModule(whole, graph)


def _needed(output: Any, given: set[fx.Node]) -> set[fx.Node]:
    """All that the output is made from, but for what is given and what that is made from."""
    found: set[fx.Node] = set()
    left: list[fx.Node] = []
    fx.node.map_arg(output, left.append)
    while left:
        node = left.pop()
        if node not in found and node not in given:
            found.add(node)
            left += node.all_input_nodes
    return found
