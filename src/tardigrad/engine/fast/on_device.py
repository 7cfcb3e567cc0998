"""The GPU's executors as a run's driver sees them, and which of them suits a run."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.layout import Sharding
from tardigrad.core.trees import named
from tardigrad.engine.fast.cuda import CudaGraphs
from tardigrad.engine.fast.cuda_single import CudaSingle
from tardigrad.engine.fast.gradients import NotBatchable, check_batchable
from tardigrad.engine.fast.lookahead import in_stages
from tardigrad.engine.fast.memory import check_memory
from tardigrad.engine.fast.suited import Unsuited, check_pure, check_suited
from tardigrad.engine.fast.tables import Placement, comes_twice, fits_stages
from tardigrad.engine.kernels import NotElementwise, trace
from tardigrad.engine.run import History, Run, Say
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, traffic
from tardigrad.tasks import ModuleTask, Task

STRIDE = 5000
"""Updates between two looks at the GPU, where nothing else stops it."""


class OnDevice:
    """An executor of captured graphs: stops now and then, and knows its own checkpoints."""

    name = "fast"

    def __init__(self, graphs: CudaGraphs | CudaSingle) -> None:
        self._graphs = graphs
        self.schedule: Schedule = graphs.schedule
        self.task: Task = graphs.task
        self.rule: Rule = graphs.rule
        theta = graphs.theta
        self.shard_bytes: tuple[int, ...] = (theta.numel() * theta.element_size(),)

    @property
    def history(self) -> History:
        return self._graphs.history

    @property
    def buffers(self) -> tuple[Tensor, ...]:
        return self._graphs.buffers

    @property
    def position(self) -> int:
        return self._graphs.position

    @property
    def updates(self) -> int:
        return self._graphs.updates

    @property
    def total(self) -> int:
        return self.schedule.updates

    @property
    def finished(self) -> bool:
        return self.updates == self.total

    @property
    def samples(self) -> int:
        return self._graphs.samples

    @property
    def params(self) -> Tensor:
        return self._graphs.params

    @property
    def average(self) -> Tensor | None:
        return self._graphs.average

    def advance_to(self, until: int) -> None:
        self._graphs.advance(min(until, self.updates + STRIDE))

    def run(self) -> Run:
        done = self._graphs.run()
        done.traffic = traffic(self.schedule, self.shard_bytes)
        return done

    def tensors(self) -> dict[str, Tensor]:
        return self._graphs.tensors()

    @cached_property
    def _digest(self) -> str:
        return self.schedule.digest

    def facts(self) -> dict[str, Any]:
        shards = [{"version": self.updates}]
        return {"schedule": self._digest, "shards": shards, **self._graphs.facts()}

    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        require(
            facts["schedule"] == self._digest,
            "the checkpoint belongs to a run of another schedule: resume with the schedule it was "
            "made with, or start in a new folder",
        )
        ours = self.tensors()
        wrong = sorted(
            name
            for name in {*ours, *tensors}
            if name not in ours or name not in tensors or ours[name].shape != tensors[name].shape
        )
        require(
            not wrong,
            f"the checkpoint belongs to a run of another rule or task ({', '.join(wrong[:1])} "
            "differs): resume with the rule and task it was made with, or start in a new folder",
        )
        self._graphs.restore(tensors, facts)


def build_on_device(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    sharding: Sharding,
    say: Say,
    budget: int,
    measures: Sequence[str] = (),
) -> OnDevice:
    """Captured and ready to run. Raises ValueError for what is wrong, Unsuited where the exact
    engine must do it."""
    module = check_captured(schedule, task, rule, sharding, measures)
    graphs: CudaGraphs | CudaSingle
    try:
        check_batched(module, rule)
        _check_memory(schedule, module, rule, sharding, budget)
        graphs = CudaGraphs(schedule, [module], [rule])
    except NotBatchable as reason:
        say(f"one graph per gradient: {reason}")
        graphs = CudaSingle(schedule, module, rule)
    graphs.prepare()
    return OnDevice(graphs)


def check_captured(
    schedule: Schedule, task: Task, rule: Rule, sharding: Sharding, measures: Sequence[str] = ()
) -> ModuleTask:
    """The task, where graphs can execute it; else Unsuited."""
    theta = task.start()
    check_pure(rule, theta[sharding.slice(0)], sharding.layouts[0])
    check_suited(schedule, rule, theta, sharding, measures)
    why = fits_stages(schedule)
    if why is None and named(rule.start_own(theta, sharding.layouts[0]), ""):
        why = comes_twice(schedule, in_stages(schedule))
    if measures:
        why = f"{measures[0]} is measured between updates, and graphs make many at once"
    if why:
        raise Unsuited(why)
    try:
        trace(rule, theta.dtype)
    except NotElementwise as error:
        raise Unsuited(f"no kernel for the rule: {error}") from None
    if not isinstance(task, ModuleTask) or task.stochastic:
        raise Unsuited("only modules that draw no random numbers are captured")
    return task


def check_batched(task: ModuleTask, rule: Rule) -> None:
    """NotBatchable where a graph cannot hold many of the task's gradients."""
    check_batchable(task, rule)
    if task.augments or task.has_statistics or rule.clip_norm is not None:
        raise NotBatchable("augmentation, BatchNorm and clipping are not captured in batches")


def work_space(task: ModuleTask, stage: int) -> int:
    """Numbers that the gradients of one batch take on the way, by rule of thumb: three copies of
    its inputs and of itself."""
    inputs = task.data.train.inputs
    return 3 * stage * (task.batch_size * inputs[0].numel() + task.layout.size)


def _check_memory(
    schedule: Schedule, task: ModuleTask, rule: Rule, sharding: Sharding, budget: int
) -> None:
    """Views and gradients in two stages and a pool, work space, and the workers' own rows: those
    twice, because capturing keeps a copy."""
    theta = task.start()
    own = sum(t.numel() for t in named(rule.start_own(theta, sharding.layouts[0]), "").values())
    rest = 2 * schedule.workers * own
    most = 2 * 3 * schedule.workers * theta.numel() + rest + work_space(task, schedule.workers)
    if most * theta.element_size() > budget:
        place = Placement(schedule, in_stages(schedule))
        needed = 2 * place.size * theta.numel() + rest + work_space(task, place.stage)
        check_memory(needed * theta.element_size(), budget, schedule)
