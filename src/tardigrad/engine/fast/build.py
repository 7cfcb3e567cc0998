"""Whether the fast engine suits a run, and the fast engine for it."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tardigrad.engine.fast.fast import Fast
from tardigrad.engine.fast.gradients import (
    CALL,
    Batched,
    Gradients,
    NotBatchable,
    OneByOne,
    check_batchable,
    compiled_gradients,
)
from tardigrad.engine.fast.lookahead import just_in_time
from tardigrad.engine.fast.memory import check_fits, predicted_bytes
from tardigrad.engine.fast.shard import own_rows_start_alike
from tardigrad.engine.fast.sizes import choose_sizes
from tardigrad.engine.fast.slots import assign_slots
from tardigrad.engine.kernels import CppKernel, NoCompiler, NotElementwise, Program, trace
from tardigrad.layout import Layout, Sharding
from tardigrad.rules import Now, Push, Rule
from tardigrad.schedule import Schedule
from tardigrad.schedule.schedule import MERGED
from tardigrad.schedules import Progress
from tardigrad.tasks import ModuleTask, Task
from tardigrad.tensors import named

Say = Callable[[str], None]

CACHE_BYTES = 12 * 2**20
"""A batch's gradients should stay in a CPU's cache until the window has applied them."""
LEAST, MOST = 4, 64
SIZES = 3
"""Batch sizes compiled for at most."""


class Unsuited(ValueError):
    """The fast engine cannot execute this; the message says why."""


def build_fast(
    schedule: Schedule,
    task: Task,
    rule: Rule,
    sharding: Sharding,
    say: Say,
    budget: int,
    measures: Sequence[str] = (),
    chunk: int | None = None,
) -> Fast:
    """The fast engine, ready to run within `budget` bytes: all that can fail has been tried.

    Raises ValueError for what is wrong, Unsuited where the exact engine must do it.
    """
    theta = task.start()
    check_pure(rule, theta.dtype)
    check_suited(schedule, rule, theta, sharding, measures)
    if chunk is None:
        chunk = suitable_chunk(theta)
    batches = just_in_time(schedule, chunk)
    slots = [assign_slots(schedule, batches, s) for s in range(schedule.shards)]
    largest = int(np.diff(batches.start).max(initial=1))
    needed = predicted_bytes(schedule, task, rule, sharding, slots, largest)
    check_fits(needed, budget, schedule)
    program = _program(rule, theta.dtype, say)
    gradients: Gradients
    try:
        check_batchable(task, rule)
        assert isinstance(task, ModuleTask)
        sizes = choose_sizes(np.diff(batches.start), SIZES, CALL)
        _warm_up(task, rule, sizes)
        gradients = Batched(schedule, task, rule, sizes)
    except NotBatchable as why:
        say(f"gradients one by one: {why}")
        gradients = OneByOne(schedule, task, rule)
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
        say(f"updates one by one: {why}")
        return None
    except NoCompiler as why:
        raise Unsuited(str(why)) from None
    except RuntimeError:  # the tracer's own, where Python asks a tensor for its value
        say("updates one by one: the rule reads numbers out of tensors")
        return None
    return program


def _warm_up(task: ModuleTask, rule: Rule, sizes: tuple[int, ...]) -> None:
    """Compile now, so that a compiler that fails is found before the run."""
    try:
        for size in sizes:
            compiled_gradients(task, rule, size)
    except Exception as error:
        first = str(error).strip().splitlines()[0][:160] if str(error).strip() else ""
        raise NotBatchable(f"compiling them failed ({type(error).__name__}: {first})") from None


def check_suited(
    schedule: Schedule, rule: Rule, theta: Tensor, sharding: Sharding, measures: Sequence[str]
) -> None:
    if "b_staleness" in measures:
        raise Unsuited("b_staleness computes every gradient again, at its update")
    if MERGED in schedule.reasons:
        raise Unsuited("a link merged gradients")
    if theta.device.type != "cpu":
        raise Unsuited(f"parameters are on {theta.device}")
    if not own_rows_start_alike(rule, theta[sharding.slice(0)], sharding.layouts[0]):
        raise Unsuited("the rule's own rows start from θ")


def check_pure(rule: Rule, dtype: torch.dtype) -> None:
    """Refuse a rule that changes its inputs, or gives two results for one input."""
    size = 6
    layout = Layout(("a", "b"), ((4,), (2,)))
    scalar = torch.ones((), dtype=torch.float64)

    def once() -> list[Tensor]:
        theta = torch.linspace(0.5, 1.5, size, dtype=dtype)
        state, own = rule.start(theta, layout), rule.start_own(theta, layout)
        grad, view = theta * 0.1, theta - 0.01
        inputs = [theta, grad, view, *named((state, own), "").values()]
        before = [tensor._version for tensor in inputs]
        first = rule.scalars(Progress(epoch_size=1))
        hosts = [tuple(scalar for _ in part) for part in (first.correction, first.optimizer)]
        now = Now(scalar * 0.1, scalar * 0.1, *hosts)
        after = rule.apply(theta, state, (own,), (0,), (Push(grad, view, scalar * 2),), now, layout)
        sent = rule.send(after[0], after[1], now)
        if before != [tensor._version for tensor in inputs]:
            raise ValueError(
                "the rule is not pure: it changed one of its inputs in place, and the fast engine "
                "would train on changed views; write x = x + y, not x += y or x.add_(y)"
            )
        return [*named(after, "").values(), sent]

    for one, other in zip(once(), once(), strict=True):
        if not torch.equal(one, other):
            raise ValueError(
                "the rule is not pure: the same inputs gave two results; take randomness from "
                "outside, or use engine='exact'"
            )
