"""Which engine executes a run; whoever asks for it is told."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from torch import Tensor

from tardigrad.core.layout import Sharding
from tardigrad.engine.exact import Exact
from tardigrad.engine.fast.build import build_on_cpu
from tardigrad.engine.fast.lookahead import just_in_time
from tardigrad.engine.fast.memory import check_budget, check_chunk, check_memory, predicted_bytes
from tardigrad.engine.fast.slots import assign_slots
from tardigrad.engine.fast.suited import Unsuited
from tardigrad.engine.run import History, Run, Say
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task

Engine = Literal["auto", "exact", "fast"]
ENGINES = ("auto", "exact", "fast")

WORTH_COMPILING = 10_000
"""Gradients from which on a run is longer than compiling for it (ten to forty seconds, once)."""


class Execution(Protocol):
    """What executes a schedule, as its driver sees it."""

    name: str

    @property
    def task(self) -> Task: ...
    @property
    def rule(self) -> Rule: ...
    @property
    def shard_bytes(self) -> tuple[int, ...]: ...
    @property
    def history(self) -> History: ...
    @property
    def buffers(self) -> tuple[Tensor, ...]: ...
    @property
    def position(self) -> int:
        """Groups applied."""
        ...

    @property
    def schedule(self) -> Schedule: ...
    @property
    def finished(self) -> bool: ...
    @property
    def total(self) -> int: ...
    @property
    def updates(self) -> int: ...
    @property
    def samples(self) -> int: ...
    @property
    def params(self) -> Tensor: ...
    @property
    def average(self) -> Tensor | None: ...

    def advance_to(self, until: int) -> None:
        """Go on, at least by one group and at most until every shard has made `until` updates."""
        ...

    def run(self) -> Run: ...
    def tensors(self) -> dict[str, Tensor]: ...
    def facts(self) -> dict[str, Any]: ...
    def restore(self, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None: ...


def choose(
    engine: Engine,
    schedule: Schedule,
    task: Task,
    rule: Rule,
    sharding: Sharding,
    say: Say,
    measures: Sequence[str] = (),
    chunk: int | None = None,
    memory_gib: float | None = None,
) -> Execution:
    """The engine asked for; "auto" takes the fast one where it suits the run and pays."""
    budget = check_budget(memory_gib, task.start().device)
    check_chunk(chunk, task, budget)
    if engine == "auto" and len(schedule.group_rows) < WORTH_COMPILING:
        say(
            f"engine: exact, because {len(schedule.group_rows):,} gradients are done sooner than "
            "compiling for them"
        )
        engine = "exact"
    if engine != "exact":
        try:
            fast = _fast(schedule, task, rule, sharding, say, budget, measures, chunk)
        except Unsuited as why:
            say(f"engine: exact, because the fast one cannot do this: {why}")
        else:
            say("engine: fast")
            return fast
    batches = just_in_time(schedule, 1)
    rows = [assign_slots(schedule, batches, s).count for s in range(schedule.shards)]
    check_memory(predicted_bytes(schedule, task, rule, sharding, rows, 1), budget, schedule)
    return Exact(schedule, task, rule, sharding, measures)


def _fast(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    sharding: Sharding,
    say: Say,
    budget: int,
    measures: Sequence[str],
    chunk: int | None,
) -> Execution:
    device = task.start().device.type
    if device == "cpu":
        return build_on_cpu(schedule, task, rule, sharding, say, budget, measures, chunk)
    if device != "cuda":
        raise Unsuited(f"it knows cpu and cuda, and the parameters are on {device}")
    # Triton is there only where CUDA is.
    from tardigrad.engine.fast.on_device import build_on_device

    return build_on_device(schedule, task, rule, sharding, say, budget, measures)
