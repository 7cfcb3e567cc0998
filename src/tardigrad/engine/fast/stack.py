"""Several runs as one: replicas that share a schedule and a model, stacked on a GPU.

The updates of a replica are bit for bit those of a single run fed the same gradients: the window
kernel treats each parameter alone. Its gradients come out of a batch that is R times larger, for
which the matrix kernels may be others, so they can differ from a single run's in the last bits.
"""

from collections.abc import Sequence

from torch import Tensor

from tardigrad.core.layout import Sharding
from tardigrad.core.trees import named
from tardigrad.engine.fast.cuda import CudaGraphs
from tardigrad.engine.fast.gradients import NotBatchable
from tardigrad.engine.fast.lookahead import in_stages
from tardigrad.engine.fast.on_device import (
    STRIDE,
    OnDevice,
    check_batched,
    check_captured,
    work_space,
)
from tardigrad.engine.fast.replicas import Stacking
from tardigrad.engine.fast.suited import Unsuited
from tardigrad.engine.fast.tables import Placement
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, traffic
from tardigrad.tasks import ModuleTask, Task


class Replica(OnDevice):
    """One run of a stack, as evaluation sees it; it advances with the others (`Stack`)."""

    def __init__(self, graphs: CudaGraphs, index: int) -> None:
        super().__init__(graphs)
        self._stacked, self._index = graphs, index
        self.task = task = graphs.tasks[index]
        self.shard_bytes = (task.layout.size * task.start().element_size(),)

    @property
    def history(self) -> History:
        return self._stacked.histories[self._index]

    @property
    def params(self) -> Tensor:
        return self._stacked.params_of(self._index)

    @property
    def average(self) -> Tensor | None:
        return self._stacked.average_of(self._index)

    @property
    def diverged(self) -> Diverged | None:
        """Set once its loss was not finite; the other replicas go on."""
        return self._stacked.diverged[self._index]

    def run(self) -> Run:
        made = traffic(self.schedule, self.shard_bytes)
        return Run(self.params, self.history, self.schedule, (), self.average, made)


class Stack:
    """Replicas that advance together."""

    def __init__(self, graphs: CudaGraphs) -> None:
        self._graphs = graphs
        self.replicas = [Replica(graphs, i) for i in range(len(graphs.tasks))]

    @property
    def updates(self) -> int:
        return self._graphs.updates

    @property
    def total(self) -> int:
        return self._graphs.schedule.updates

    def advance_to(self, until: int) -> None:
        self._graphs.advance(min(until, self.updates + STRIDE))


def stack_on_device(
    schedule: Schedule, tasks: Sequence[ModuleTask], rules: Sequence[Rule]
) -> Stack:
    """Captured and ready to run; what was to be checked is (`check_stackable`)."""
    graphs = CudaGraphs(schedule, tasks, rules)
    graphs.prepare()
    return Stack(graphs)


def check_stackable(
    schedule: Schedule, tasks: Sequence[Task], rules: Sequence[Rule]
) -> list[ModuleTask]:
    """The tasks, where they and the rules can go through the schedule as one; else Unsuited."""
    modules = []
    for task, rule in zip(tasks, rules, strict=True):
        module = check_captured(schedule, task, rule, Sharding.divide(task.layout))
        try:
            check_batched(module, rule)
        except NotBatchable as why:
            raise Unsuited(str(why)) from None
        modules.append(module)
    for module in modules[1:]:
        what = modules[0].differs(module)
        if what is not None:
            raise Unsuited(f"the tasks differ in {what}")
    return modules


def stacked_bytes(schedule: Schedule, task: ModuleTask, rules: Sequence[Rule]) -> int:
    """What each replica of a stack takes, by the rule that keeps most: views and gradients in
    stages and a pool; own rows and state, twice (capturing keeps a copy); samples; work space."""
    batches = in_stages(schedule)
    place = Placement(schedule, batches)
    theta, layout = task.start(), task.layout
    kept = max(
        len(named(rule.start(theta, layout), ""))
        + schedule.workers * len(named(rule.start_own(theta, layout), ""))
        for rule in rules
    )
    vectors = (2 * place.size + 2 * (1 + kept)) * Stacking(layout.size, len(rules)).stride
    samples = len(batches.rows) * task.batch_size * 8
    return (vectors + work_space(task, place.stage)) * theta.element_size() + samples
