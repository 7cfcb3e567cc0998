"""A rule's own code as a graph of torch's operations, and whether it treats each parameter alone.

Nothing that a rule says of itself is needed for this: `Rule.apply`, `leave` and `send` are traced
on small vectors, and the graph shows what they do. It is element-wise where every operation is, and
where neither the number of parameters nor the layout of tensors had a part in it. What cannot be
shown so counts as not element-wise.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from tardigrad.core.trees import named, restored
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Now, Push, Rule
from tardigrad.rules.rates import Progress

ATEN = torch.ops.aten
Mode = Literal["real", "fake"]
SIZE, OTHER_SIZE = 8, 11
"""Lengths of the vectors traced on; 0-dim values are told from vectors by them."""
ALIKE = (
    ATEN.zeros_like.default,
    ATEN.ones_like.default,
    ATEN.full_like.default,
    ATEN.detach.default,
    ATEN._to_copy.default,
    ATEN.copy_.default,
    ATEN.fill_.Scalar,
    ATEN.zero_.default,
    ATEN.lift_fresh_copy.default,
)
"""Operations that treat each element alone, though torch does not tag them so."""


class UpdateGraph(NamedTuple):
    """One update. Inputs, in order: θ, the gradients, their views, the state's tensors, each
    worker's own, the stalenesses, η, η_max and the host's scalars. Outputs: θ, the state's tensors,
    each worker's own, and what is sent."""

    graph: fx.GraphModule
    states: int
    owns: int
    """Tensors of one worker."""


def update_graph(rule: Rule, dtype: torch.dtype, gradients: int = 1) -> UpdateGraph:
    """Of an update from one gradient each of so many workers, checked to be element-wise."""
    try:
        graph = _graph(rule, dtype, gradients, SIZE, "real")
        _check(graph.graph, SIZE)
        # Tensors without numbers in them: whoever looks at numbers past torch is found out.
        other = _graph(rule, dtype, gradients, OTHER_SIZE, "fake")
    except Unsuited:
        raise
    except Exception as error:  # the user's code may raise anything, and so may the tracer
        lines = str(error).strip().splitlines() or [""]
        why = f"tracing it failed ({type(error).__name__}: {lines[0][:160]})"
        if "_local_scalar_dense" in lines[0]:
            why = "it reads numbers out of tensors"
        raise Unsuited(why, "rule") from error
    if _text(graph.graph) != _text(other.graph):
        raise Unsuited("what it does depends on how many parameters there are", "rule")
    return graph


def _graph(rule: Rule, dtype: torch.dtype, gradients: int, size: int, mode: Mode) -> UpdateGraph:
    layout: Any = _NoLayout()
    theta = torch.linspace(0.5, 1.5, size, dtype=dtype)
    state, own = rule.start(theta, layout), rule.start_own(theta, layout)
    empty = {n: t for n, t in named(state, "s").items() if not t.numel()}
    kept = {n: t for n, t in named(state, "s").items() if n not in empty}
    rows = named(own, "o")
    scalar = torch.ones((), dtype=torch.float64)
    first = rule.scalars(Progress(epoch_size=1))
    split = len(first.correction)

    def update(
        theta: Tensor,
        grads: list[Tensor],
        views: list[Tensor],
        states: list[Tensor],
        owns: list[list[Tensor]],
        staleness: list[Tensor],
        lr: Tensor,
        lr_max: Tensor,
        host: list[Tensor],
    ) -> list[Tensor]:
        now = Now(lr, lr_max, tuple(host[:split]), tuple(host[split:]))
        new_theta, new_state, new_owns = rule.apply(
            theta,
            restored(state, dict(zip(kept, states, strict=True)) | empty, "s"),
            [restored(own, dict(zip(rows, given, strict=True)), "o") for given in owns],
            range(gradients),
            [Push(*push) for push in zip(grads, views, staleness, strict=True)],
            now,
            layout,
        )
        after = [t for n, t in named(new_state, "s").items() if n not in empty]
        sent = rule.send(new_theta, new_state, now, gradients)
        if gradients > 1:  # seen only, as what nobody reads
            rule.leave(new_state, new_owns[0])
        after_owns = [t for new in new_owns for t in named(new, "o").values()]
        return [new_theta, *after, *after_owns, sent]

    def each(make: Callable[[float], Tensor]) -> list[Tensor]:
        return [make(0.1 * i) for i in range(gradients)]

    graph = make_fx(update, tracing_mode=mode, _allow_non_fake_inputs=True)(
        theta,
        each(lambda by: torch.linspace(0.1 + by, 0.3, size, dtype=dtype)),
        each(lambda by: torch.linspace(0.4 + by, 1.4, size, dtype=dtype)),
        list(kept.values()),
        [[row.clone() for row in rows.values()] for _ in range(gradients)],
        each(lambda by: scalar + by),
        scalar,
        scalar.clone(),
        [scalar.clone() for _ in (*first.correction, *first.optimizer)],
    )
    return UpdateGraph(graph, len(kept), len(rows))


class _NoLayout:
    """Stands where a layout does, for who treats each parameter alone has no use for it, but for
    what it says of each one."""

    def by_name(self, value: Callable[[str], float], like: Tensor) -> Tensor:
        """Numbers for each parameter alone, of which the graph must not know what they are."""
        return torch.full_like(like, 0.5)

    def __getattr__(self, name: str) -> Any:
        raise Unsuited("it asks for the layout of tensors", "rule")


def _check(graph: fx.GraphModule, size: int) -> None:
    """Every operation acts on each element alone, and every value is 0-dim or a vector."""
    wrong: list[Unsuited] = []
    for node in graph.graph.nodes:
        if node.op == "output":
            continue
        value = node.meta["val"]
        if node.op == "placeholder" or node.op == "get_attr":
            what = "state" if node.op == "placeholder" else "tensor"
            if value.shape != () and (node.op == "get_attr" or value.shape != (size,)):
                shape = tuple(value.shape)
                wrong.append(Unsuited(f"it keeps a {what} of shape {shape}", "rule"))
            continue
        tags = getattr(node.target, "tags", ())
        alone = torch.Tag.pointwise in tags or node.target in ALIKE
        if alone and isinstance(value, Tensor) and value.shape in ((), (size,)):
            continue
        read = [n.meta["val"] for n in node.all_input_nodes]
        most = max((x.numel() for x in read if isinstance(x, Tensor)), default=0)
        fewer = isinstance(value, Tensor) and value.numel() < most
        name = str(node.target).removeprefix("aten.").removesuffix(".default")
        why = f"{name} may look at several parameters"
        wrong.append(Unsuited(why, "reduction" if fewer else "rule"))
    if wrong:
        raise next((error for error in wrong if error.reason == "reduction"), wrong[0])


def _text(graph: fx.GraphModule) -> tuple[str, tuple[Any, ...]]:
    """The operations with their constants."""
    held = [node.target for node in graph.graph.nodes if node.op == "get_attr"]
    return graph.code, tuple(getattr(graph, str(name)).tolist() for name in held)
