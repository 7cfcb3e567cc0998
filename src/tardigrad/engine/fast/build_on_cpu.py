"""The fast engine for a run on the CPU."""

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.allocation import keep_freed_batches
from tardigrad.engine.execution import Execution
from tardigrad.engine.fast.batch_sizes import choose_sizes, cover
from tardigrad.engine.fast.batches import Batches, just_in_time
from tardigrad.engine.fast.cpu_general import CpuGeneral
from tardigrad.engine.fast.cpu_stream import CpuStream
from tardigrad.engine.fast.gradients import (
    CALL,
    Batched,
    Gradients,
    OneByOne,
    check_batchable,
    compiled_gradients,
    padded,
)
from tardigrad.engine.fast.groups import first_of_each
from tardigrad.engine.fast.largest_tensor import largest_bytes
from tardigrad.engine.fast.requirements import check_pure, check_suited, why_not_one_by_one
from tardigrad.engine.fast.view_places import assign_slots, in_blocks_or_slots, in_slots
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import CppKernel, Program, trace
from tardigrad.engine.memory import check_memory, predicted_bytes
from tardigrad.engine.run import Say
from tardigrad.engine.unsuited import Unsuited
from tardigrad.rules import Rule
from tardigrad.tasks import ModuleTask

CACHE_BYTES = 12 * 2**20
"""A batch's gradients should stay in a CPU's cache until the window has applied them."""
PREPARED_BYTES = 2**30
"""Most that a data set may take whose bytes were made floats once, before the run."""
LARGEST_BYTES = 32 * 2**20
"""What the largest tensor of a batch's gradients should not exceed. Here a transformer's batches of
128 texts took 37 to 40 ms a gradient, 2 to 8 at a time, and 78 ms 16 at a time."""
LEAST, MOST = 4, 64
SIZES = 3
"""Batch sizes compiled for at most."""


def build_on_cpu(job: Job, say: Say, budget: int, chunk: int | None = None) -> Execution:
    """The fast engine, ready to run within `budget` bytes: all that can fail has been tried.

    Raises ValueError for what is wrong, Unsuited where the exact engine must do it.
    """
    keep_freed_batches()
    schedule, task, rule = job.schedule, job.task, job.rule
    theta = task.start()
    check_pure(rule, *job.parts()[0])
    check_suited(job)
    module, largest_tensor = _batchable(job, say)
    program = _program(rule, theta.dtype, say)
    planned = schedule
    if program is not None and not job.measures and isinstance(task, ModuleTask):
        planned = first_of_each(job) or schedule
    each = len(schedule.group_rows) // max(1, len(planned.group_rows))
    batches = just_in_time(planned, chunk or suitable_chunk(theta, each * largest_tensor))
    sizes = _sizes(job, module, batches, each, say)
    if sizes and each > 1:
        say(f"each round's {each} gradients as one of all their samples")
    elif each > 1:  # the model may want batches of just its size
        planned = schedule
        batches = just_in_time(planned, chunk or suitable_chunk(theta, largest_tensor))
        sizes = _sizes(job, module, batches, 1, say)
    largest = batches.largest
    slots = [assign_slots(planned, batches, s) for s in range(schedule.shards)]
    check_memory(predicted_bytes(job, [s.count for s in slots], largest), budget, schedule)
    if program is not None and sizes and not job.measures and not why_not_one_by_one(planned):
        assert isinstance(task, ModuleTask)
        if not (task.augments or task.has_statistics):
            batches = batches.cut(lambda size: cover(size, sizes, CALL))
            row_bytes = padded(len(theta)) * theta.element_size()
            places = in_blocks_or_slots(planned, batches, row_bytes)
            if predicted_bytes(job, [places.count + max(sizes)], largest) > budget:
                places = in_slots(planned, batches)
            rest = budget - predicted_bytes(job, [places.count + max(sizes)], largest)
            most = min(PREPARED_BYTES, rest)
            return CpuStream(job, batches, places, sizes, program, most)
    gradients: Gradients = OneByOne(job)
    if sizes:
        gradients = Batched(job, sizes)
    return CpuGeneral(job, batches, slots, gradients, program)


def suitable_chunk(theta: Tensor, largest: int = 0) -> int:
    """A power of two whose gradients stay in the cache. `largest`: bytes that the largest tensor of
    one gradient takes, where those of a batch are made together."""
    fit = CACHE_BYTES // (theta.numel() * theta.element_size())
    chunk = max(LEAST, min(MOST, 1 << max(0, fit.bit_length() - 1)))
    while chunk > 1 and chunk * largest > LARGEST_BYTES:
        chunk //= 2
    return chunk


def _program(rule: Rule, dtype: torch.dtype, say: Say) -> Program | None:
    """The rule's kernel, compiled; None where it has none."""
    try:
        program = trace(rule, dtype)
    except Unsuited as why:
        say(f"updates one by one: no kernel for the rule: {why}")
        return None
    CppKernel(program, dtype)
    return program


def _batchable(job: Job, say: Say) -> tuple[ModuleTask | None, int]:
    """The task, if its gradients can be computed many at a time, and the bytes that the largest
    tensor of one takes."""
    try:
        module = check_batchable(job.task, job.one_gradient)
        try:
            return module, largest_bytes(job)
        except Exception as error:
            raise _failed("watching its tensors", error) from None
    except Unsuited as why:
        say(f"gradients one by one: {why}")
        return None, 0


def _failed(what: str, error: Exception) -> Unsuited:
    first = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
    return Unsuited(f"{what} failed ({type(error).__name__}: {first})", "gradients")


def _sizes(
    job: Job, module: ModuleTask | None, batches: Batches, each: int, say: Say
) -> tuple[int, ...]:
    """Batch sizes for which gradients are compiled, none where they are computed one by one.

    They are compiled now, so that a compiler that fails is found before the run.
    """
    if module is None:
        return ()
    sizes = choose_sizes(np.diff(batches.start), SIZES, CALL)
    try:
        for size in sizes:
            compiled_gradients(module, job.one_gradient, size, each)
    except Exception as error:
        say(f"gradients one by one: {_failed('compiling them', error)}")
        return ()
    return sizes
