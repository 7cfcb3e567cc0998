"""A rule's own code as a list of element-wise operations, from which window kernels are written.

An element-wise rule acts on each parameter alone, so many consecutive updates can run in one
kernel that keeps θ and the state of an element in registers. The kernel must not be a second copy
of the maths: `graph` traces `Rule.apply` and `Rule.send`, and here the operations that it found
become those of the emitters. Whatever is 0-dim (rates, bias corrections, staleness) is evaluated on
the host, for all updates of a run at once, and reaches the kernel as a table of coefficients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx

from tardigrad.engine.kernels.graph import SIZE, update_graph
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Rule

ATEN = torch.ops.aten


@dataclass(frozen=True)
class Operation:
    """One operation: `op` names it, `args` are step indices ("v3"), inputs, coefficients or
    literals, already as text."""

    name: str
    op: str
    args: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """What happens to one element in one update.

    Inputs are named theta, grad, view, s0.. (state) and o0.. (this worker's own rows); c0.. are
    coefficients of the update. `outputs` gives the names of theta, s.., o.. and sent after it.
    """

    steps: tuple[Operation, ...]
    states: int
    owns: int
    coefficients: int
    reads_view: bool
    sends_theta: bool
    outputs: dict[str, str]
    scalars: "ScalarProgram"


class ScalarProgram:
    """The 0-dim part of the trace, evaluated for many updates at once."""

    def __init__(self, graph: fx.GraphModule, nodes: list[fx.Node], inputs: list[fx.Node]) -> None:
        self._graph, self._nodes, self._inputs = graph, nodes, inputs
        self.wanted: list[fx.Node] = []

    def table(self, values: Tensor) -> Tensor:
        """(updates, inputs) float64 → (updates, coefficients) float64.

        Columns of `values`: staleness, η, η_max, the correction's and the optimizer's scalars.
        """
        known: dict[fx.Node, Any] = {
            node: values[:, i].contiguous() for i, node in enumerate(self._inputs)
        }
        for node in self._nodes:
            if node.op == "get_attr":
                # As long as the others, so that types promote as they do among 0-dim tensors.
                known[node] = getattr(self._graph, str(node.target)).expand(len(values))
            else:
                args = fx.node.map_arg(node.args, lambda n: known[n])
                kwargs = fx.node.map_arg(node.kwargs, lambda n: known[n])
                known[node] = node.target(*args, **kwargs)  # type: ignore[operator]
        if not self.wanted:
            return values.new_empty(len(values), 0)
        columns = [known[node].expand(len(values)) for node in self.wanted]
        return torch.stack(columns, dim=1)


def trace(rule: Rule, dtype: torch.dtype) -> Program:
    """The program of one update from one gradient; Unsuited where there is none."""
    graph, states, owns = update_graph(rule, dtype)
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    (output,) = [n for n in graph.graph.nodes if n.op == "output"]
    vectors = [*placeholders[: 3 + states + owns], *output.args[0]]
    if any(n.meta["val"].shape != (SIZE,) or n.meta["val"].dtype != dtype for n in vectors):
        why = "it keeps numbers that are not one for each parameter, of its type"
        raise Unsuited(why, "rule")
    return _program(graph, states, owns)


def _program(graph: fx.GraphModule, states: int, owns: int) -> Program:
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    vectors = ["theta", "grad", "view", *(f"s{i}" for i in range(states))]
    vectors += [f"o{i}" for i in range(owns)]
    names: dict[fx.Node, str] = dict(zip(placeholders, vectors, strict=False))
    inputs = placeholders[len(vectors) :]
    scalar_nodes: list[fx.Node] = []
    scalars = ScalarProgram(graph, scalar_nodes, inputs)
    steps: list[Operation] = []
    used: set[str] = set()

    def text(value: Any) -> str:
        if not isinstance(value, fx.Node):
            return _literal(value)
        if value not in names:  # a 0-dim value that vectors need: a coefficient of the update
            names[value] = f"c{len(scalars.wanted)}"
            scalars.wanted.append(value)
        used.add(names[value])
        return names[value]

    outputs: list[str] = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            outputs = [text(value) for value in node.args[0]]
        elif node.meta["val"].dim() == 0:  # of scalars alone, as every operation is element-wise
            scalar_nodes.append(node)
        else:
            op, args = _operation(node)
            step = Operation(f"v{len(steps)}", op, tuple(text(a) for a in args))
            names[node] = step.name
            steps.append(step)
    results = ["theta", *(f"s{i}" for i in range(states)), *(f"o{i}" for i in range(owns)), "sent"]
    after = dict(zip(results, outputs, strict=True))
    return Program(
        steps=tuple(steps),
        states=states,
        owns=owns,
        coefficients=len(scalars.wanted),
        reads_view="view" in used,
        sends_theta=after["sent"] == after["theta"],
        outputs=after,
        scalars=scalars,
    )


def _operation(node: fx.Node) -> tuple[str, Sequence[Any]]:
    """The node as one of the emitters' operations."""
    target: Any = node.target
    args: list[Any] = list(node.args)
    kwargs: dict[str, Any] = dict(node.kwargs)
    if target in (ATEN.add.Tensor, ATEN.sub.Tensor):
        alpha = kwargs.get("alpha", 1)
        sign = -1 if target == ATEN.sub.Tensor else 1
        if sign * alpha == 1:
            return "add", args
        if sign * alpha == -1:
            return "sub", args
        return "fma", [args[1], sign * alpha, args[0]]
    if target in (ATEN.mul.Tensor, ATEN.mul.Scalar):
        return "mul", args
    if target in (ATEN.div.Tensor, ATEN.div.Scalar):
        return "div", args
    if target == ATEN.addcmul.default:
        value = kwargs.get("value", 1)
        return ("fma", [args[1], args[2], args[0]]) if value == 1 else ("fma3", [*args, value])
    if target == ATEN.lerp.Scalar and abs(args[2]) < 0.5:
        return "lerp", args
    if target == ATEN.clamp.default and args[1] is not None and len(args) == 2:
        return "at_least", args[:2]
    simple: dict[Any, str] = {
        ATEN.sqrt.default: "sqrt",
        ATEN.abs.default: "abs",
        ATEN.neg.default: "neg",
        ATEN.exp.default: "exp",
        ATEN.reciprocal.default: "reciprocal",
        ATEN.clamp_min.default: "at_least",
        ATEN.zeros_like.default: "zero",
        ATEN.ones_like.default: "one",
        ATEN.clone.default: "copy",
        ATEN.detach.default: "copy",
        ATEN.rsub.Scalar: "rsub",
    }
    if target in simple and not (target == ATEN.rsub.Scalar and len(args) + len(kwargs) > 2):
        arity = 2 if simple[target] in ("at_least", "rsub") else 1
        return simple[target], args[:arity]
    raise Unsuited(f"the operation {target} has no kernel form", "rule")


def _literal(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unsuited(f"the constant {value!r} has no kernel form", "rule")
    return repr(float(value))
