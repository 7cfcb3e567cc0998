"""Which engine executes a run; whoever asks for it is told."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

from tardigrad.engine.exact import Exact
from tardigrad.engine.execution import Execution
from tardigrad.engine.fast.build_on_cpu import build_on_cpu
from tardigrad.engine.job import Job
from tardigrad.engine.memory import check_budget, check_chunk, check_memory, predicted_bytes
from tardigrad.engine.options import Limits
from tardigrad.engine.run import Say
from tardigrad.engine.unsuited import Unsuited
from tardigrad.engine.versions import most_versions
from tardigrad.links import Identity
from tardigrad.tasks import ModuleTask, Task
from tardigrad.work import OneGradient

Engine = Literal["auto", "exact", "fast"]
ENGINES = ("auto", "exact", "fast")

WORTH_COMPILING = 10_000
"""Gradients from which on a run is longer than compiling for it (ten to forty seconds, once)."""


def choose(engine: Engine, job: Job, say: Say, limits: Limits) -> Execution:
    """The engine asked for; "auto" takes the fast one where it suits the run and pays."""
    schedule = job.schedule
    budget = check_budget(limits.memory_gib, job.task.start().device)
    check_chunk(limits.chunk, job.task, budget)
    if type(job.work) is not OneGradient:
        say(f"engine: exact, because the fast one does not know {type(job.work).__name__} yet")
        engine = "exact"
    elif not isinstance(job.codec, Identity):
        say(f"engine: exact, because the fast one does not know {type(job.codec).__name__} yet")
        engine = "exact"
    if engine == "auto" and len(schedule.group_rows) < WORTH_COMPILING:
        say(
            f"engine: exact, because {len(schedule.group_rows):,} gradients are done sooner than "
            "compiling for them"
        )
        engine = "exact"
    if engine != "exact":
        try:
            with _alone(job.task):
                fast = _fast(job, say, budget, limits.chunk)
        except Unsuited as why:
            say(f"engine: exact, because the fast one cannot do this: {why}")
        else:
            say("engine: fast")
            return fast
    check_memory(predicted_bytes(job, most_versions(schedule, extended=True), 1), budget, schedule)
    return Exact(job)


def _alone(task: Task) -> AbstractContextManager[None]:
    """While its module is tried and compiled."""
    return task.alone if isinstance(task, ModuleTask) else nullcontext()


def _fast(job: Job, say: Say, budget: int, chunk: int | None) -> Execution:
    device = job.task.start().device.type
    if device == "cpu":
        return build_on_cpu(job, say, budget, chunk)
    if device != "cuda":
        raise Unsuited(f"it knows cpu and cuda, and the parameters are on {device}")
    # Triton is there only where CUDA is.
    from tardigrad.engine.fast.build_on_device import build_on_device

    return build_on_device(job, say, budget)
