"""Whether a worker's rows begin the same whenever it comes, seen from the rule's code."""

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tardigrad.core.layout import Layout
from tardigrad.core.trees import named
from tardigrad.rules import Rule

ATEN = torch.ops.aten
OF_THE_SHAPE = (
    ATEN.empty_like.default,
    ATEN.full_like.default,
    ATEN.new_empty.default,
    ATEN.new_full.default,
    ATEN.new_ones.default,
    ATEN.new_zeros.default,
    ATEN.ones_like.default,
    ATEN.zeros_like.default,
)
"""Operations that look at a tensor's shape and type, not at its numbers."""


def own_rows_start_alike(rule: Rule, theta: Tensor, layout: Layout) -> bool:
    """Whether a worker's rows are vectors that do not depend on what θ is when it first comes. What
    cannot be followed counts as not."""

    def start(theta: Tensor) -> list[Tensor]:
        return list(named(rule.start_own(theta, layout), "").values())

    try:  # without numbers in the tensors: whoever looks at them past torch is found out
        graph = make_fx(start, tracing_mode="fake", _allow_non_fake_inputs=True)(theta).graph
    except Exception:  # the user's code may raise anything, and so may the tracer
        return False
    depends = set()
    for node in graph.nodes:
        if node.op == "output":
            rows = node.args[0]
        elif node.op == "placeholder":
            depends.add(node)
        elif node.op == "call_function" and node.target not in OF_THE_SHAPE:
            drawn = torch.Tag.nondeterministic_seeded in node.target.tags
            if drawn or depends.intersection(node.all_input_nodes):
                depends.add(node)
    return not depends.intersection(rows) and all(row.meta["val"].dim() == 1 for row in rows)
