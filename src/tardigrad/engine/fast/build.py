"""The fast engine for a run on the CPU."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from tardigrad.core.allocation import keep_freed_batches
from tardigrad.core.layout import Sharding
from tardigrad.engine.fast.fast import Fast
from tardigrad.engine.fast.gradients import (
    CALL,
    Batched,
    Gradients,
    NotBatchable,
    OneByOne,
    check_batchable,
    compiled_gradients,
    padded,
)
from tardigrad.engine.fast.groups import first_of_each
from tardigrad.engine.fast.lookahead import Batches, cut_into_calls, just_in_time
from tardigrad.engine.fast.memory import check_memory, predicted_bytes
from tardigrad.engine.fast.sizes import choose_sizes, cover
from tardigrad.engine.fast.slots import assign_slots
from tardigrad.engine.fast.stream import Stream
from tardigrad.engine.fast.suited import Unsuited, check_pure, check_suited
from tardigrad.engine.fast.waiting import place_views, why_not_one_by_one
from tardigrad.engine.kernels import CppKernel, NoCompiler, NotElementwise, Program, trace
from tardigrad.engine.run import Say
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import ModuleTask, Task

CACHE_BYTES = 12 * 2**20
"""A batch's gradients should stay in a CPU's cache until the window has applied them."""
LEAST, MOST = 4, 64
SIZES = 3
"""Batch sizes compiled for at most."""


def build_on_cpu(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    sharding: Sharding,
    say: Say,
    budget: int,
    measures: Sequence[str] = (),
    chunk: int | None = None,
) -> Fast | Stream:
    """The fast engine, ready to run within `budget` bytes: all that can fail has been tried.

    Raises ValueError for what is wrong, Unsuited where the exact engine must do it.
    """
    keep_freed_batches()
    theta = task.start()
    check_pure(rule, theta[sharding.slice(0)], sharding.layouts[0])
    check_suited(schedule, rule, theta, sharding, measures)
    if chunk is None:
        chunk = suitable_chunk(theta)
    program = _program(rule, theta.dtype, say)
    planned = schedule
    if program is not None and not measures and isinstance(task, ModuleTask):
        planned = first_of_each(schedule, task, rule) or schedule
    batches = just_in_time(planned, chunk)
    each = len(schedule.group_rows) // max(1, len(planned.group_rows))
    sizes = _sizes(task, rule, batches, each, say)
    if sizes and each > 1:
        say(f"each round's {each} gradients as one of all their samples")
    elif each > 1:  # the model may want batches of just its size
        planned, batches = schedule, just_in_time(schedule, chunk)
        sizes = _sizes(task, rule, batches, 1, say)
    largest = int(np.diff(batches.start).max(initial=1))
    slots = [assign_slots(planned, batches, s) for s in range(schedule.shards)]

    def needed(rows: Sequence[int]) -> int:
        return predicted_bytes(schedule, task, rule, sharding, rows, largest)

    check_memory(needed([slot.count for slot in slots]), budget, schedule)
    if program is not None and sizes and not measures and not why_not_one_by_one(planned):
        assert isinstance(task, ModuleTask)
        if not (task.augments or task.has_statistics):
            batches = cut_into_calls(batches, lambda size: cover(size, sizes, CALL))
            row_bytes = padded(len(theta)) * theta.element_size()
            waiting = place_views(planned, batches, row_bytes)
            if needed([waiting.count + max(sizes)]) > budget:
                waiting = place_views(planned, batches, row_bytes, room=0, small_bytes=0)
            return Stream(schedule, task, rule, batches, waiting, sizes, program)
    gradients: Gradients = OneByOne(schedule, task, rule)
    if sizes:
        assert isinstance(task, ModuleTask)
        gradients = Batched(schedule, task, rule, sizes)
    return Fast(schedule, task, rule, sharding, batches, slots, gradients, program, measures)


def suitable_chunk(theta: Tensor) -> int:
    """A power of two whose gradients stay in the cache."""
    fit = CACHE_BYTES // (theta.numel() * theta.element_size())
    return max(LEAST, min(MOST, 1 << max(0, fit.bit_length() - 1)))


def _program(rule: Rule, dtype: torch.dtype, say: Say) -> Program | None:
    try:
        program = trace(rule, dtype)
        CppKernel(program, dtype)
    except NotElementwise as why:
        say(f"updates one by one: no kernel for the rule: {why}")
        return None
    except NoCompiler as why:
        raise Unsuited(str(why)) from None
    return program


def _sizes(task: Task, rule: Rule, batches: Batches, each: int, say: Say) -> tuple[int, ...]:
    """Batch sizes for which gradients are compiled, none where they are computed one by one.

    They are compiled now, so that a compiler that fails is found before the run.
    """
    try:
        check_batchable(task, rule)
        assert isinstance(task, ModuleTask)
        sizes = choose_sizes(np.diff(batches.start), SIZES, CALL)
        try:
            for size in sizes:
                compiled_gradients(task, rule, size, each)
        except Exception as error:
            first = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
            raise NotBatchable(f"compiling them failed ({type(error).__name__}: {first})") from None
    except NotBatchable as why:
        say(f"gradients one by one: {why}")
        return ()
    return sizes
