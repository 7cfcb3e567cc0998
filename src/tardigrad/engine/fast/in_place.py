"""θ, a rule's state and the workers' own rows as kernels hold them: changed in place."""

from typing import Any

from torch import Tensor

from tardigrad.core.layout import Layout
from tardigrad.core.trees import leaves, rebuilt
from tardigrad.rules import Rule, RuleOwn, RuleState


class InPlace:
    """`states`: the state's vectors, without what is empty. `owns`: for each tensor of a worker's
    own, a table with a row for each worker."""

    def __init__(self, theta: Tensor, state: RuleState, own: RuleOwn, workers: int) -> None:
        self.theta, self.state = theta, state
        self.states = [t for t in leaves(state) if t.numel()]
        self.owns = [rows_of(start, workers) for start in leaves(own)]

    @classmethod
    def at_start(cls, rule: Rule, theta: Tensor, layout: Layout, workers: int) -> "InPlace":
        state, own = rule.start(theta, layout), rule.start_own(theta, layout)
        return InPlace(theta.clone(), copied(state), own, workers)


def copied(tree: Any) -> Any:
    """The same tree of other tensors."""
    return rebuilt(tree, [tensor.clone() for tensor in leaves(tree)])


def rows_of(start: Tensor, count: int) -> Tensor:
    """A row for each worker. Zeros take no memory until they are written to, so that workers who
    never come cost nothing."""
    table = start.new_zeros(count, len(start))
    if bool(start.any()):
        table[:] = start
    return table
