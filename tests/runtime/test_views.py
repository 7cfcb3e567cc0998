"""What a worker's view is made of."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Sharding
from tardigrad.protocol.messages import NO_ROW
from tardigrad.protocol.worker_outputs import Compute
from tardigrad.protocol.worker_session import WorkerStart
from tardigrad.recording.setup import RunSetup
from tardigrad.runtime.worker_process import WorkerProcess
from tardigrad.tasks import Data, Gradient, Split, Turn
from tardigrad.work import OneGradient

ELSEWHERE = object()


def seen_by_gradients(shards: int, payloads: dict[int, object]) -> tuple[list[Tensor], list[int]]:
    """Views of gradients, and how often a payload's numbers were copied; those of a tensor are the
    view."""
    seen: list[Tensor] = []
    copied: list[int] = []

    def gradient(view: Tensor, worker: int, step: int) -> Tensor:
        seen.append(view)
        return view

    def copy(payload: object, out: Tensor) -> None:
        copied.append(len(out))
        out.fill_(7.0) if payload is ELSEWHERE else out.copy_(payload)  # type: ignore[arg-type]

    def whole(payload: object) -> Tensor | None:
        return payload if isinstance(payload, Tensor) else None

    task = tg.FunctionTask(torch.zeros(6), gradient)
    run = RunSetup(task, tg.rules.sgd(0.1), tg.Async(), Sharding.divide(task.layout, shards), 1, 9)
    start = WorkerStart(0, 0, 0, NO_ROW, (0,) * shards, (1,) * shards)
    process = WorkerProcess(run, start, copy, whole)
    compute = Compute(0, 0, 0, (1,) * shards, payloads, 0.0)
    process.load(compute)
    process.gradient(compute)
    return seen, copied


def test_numbers_that_came_in_a_frame_are_the_view_and_are_not_copied() -> None:
    came = torch.arange(6.0)
    (seen,), copied = seen_by_gradients(1, {0: came})
    assert seen.data_ptr() == came.data_ptr()
    assert copied == []


def test_numbers_that_cannot_be_the_view_are_copied() -> None:
    (seen,), copied = seen_by_gradients(1, {0: ELSEWHERE})
    assert seen.tolist() == [7.0] * 6
    assert copied == [6]


def test_the_parts_of_several_shards_are_copied_into_one_view() -> None:
    (seen,), copied = seen_by_gradients(2, {0: torch.ones(3), 1: ELSEWHERE})
    assert seen.tolist() == [1.0] * 3 + [7.0] * 3
    assert copied == [3, 3]


@dataclass(frozen=True)
class KeepsView(tg.Work[Any]):
    """Pushes its view, and keeps it beside a number of its own."""

    def start(self, task: tg.Task, theta: Tensor) -> Any:
        return (torch.zeros(()), theta)

    def run(
        self,
        task: tg.Task,
        view: Tensor,
        state: Any,
        turn: Turn,
        batches: int,
        interrupted: Any = None,
    ) -> tg.Delivery[Any]:
        return tg.Delivery(Gradient(torch.zeros(()), view, (view[:2],)), (state[0] + 1, view))


def test_what_a_worker_keeps_of_its_view_stays_when_the_next_one_comes() -> None:
    """Gradients are kept until every shard has them, states for good; the view's memory is not."""
    task = tg.FunctionTask(torch.zeros(4), lambda view, worker, step: view)
    sharding = Sharding.divide(task.layout, 1)
    run = RunSetup(task, tg.rules.sgd(0.1), tg.Async(), sharding, 1, 9, work=KeepsView())
    memory = torch.zeros(4)

    def whole(payload: float) -> Tensor:
        memory.fill_(payload)
        return memory

    start = WorkerStart(0, 0, 0, NO_ROW, (0,), (1,))
    process = WorkerProcess(run, start, lambda payload, out: None, whole)
    found = []
    for version in (1.0, 2.0):
        compute = Compute(0, 0, 0, (1,), {0: version}, 0.0)
        process.load(compute)
        found.append(process.gradient(compute))
    first = found[0]
    assert first is not None
    assert first.grad.tolist() == first.state[1].tolist() == [1.0] * 4
    assert first.buffers[0].tolist() == [1.0] * 2
    assert first.state[0] == 1


def test_only_code_that_certainly_writes_nothing_there_computes_in_shared_memory() -> None:
    """NumPy may write to a view, and torch does not count it."""
    ours = quadratic_module()

    class Own(tg.ModuleTask):
        def gradient(self, view: Tensor, turn: Turn) -> Gradient:
            return super().gradient(view, turn)

    def leaves(task: Any, work: Any) -> bool:
        sharding = Sharding.divide(task.layout, 1)
        return RunSetup(task, tg.rules.sgd(0.1), tg.Async(), sharding, 1, 9, work=work).leaves_view

    own = Own(ours.module, "mse", ours.data, 2)
    theirs = tg.FunctionTask(torch.zeros(4), lambda view, worker, step: view)
    assert leaves(ours, OneGradient())
    assert not leaves(own, OneGradient())
    assert not leaves(theirs, OneGradient())
    assert not leaves(ours, tg.LocalSteps(2, tg.rules.sgd(0.1)))
    assert not leaves(ours, KeepsView())


def quadratic_module() -> tg.ModuleTask:
    data = Data(Split(torch.ones(4, 3), torch.ones(4, 1)))
    return tg.ModuleTask(torch.nn.Linear(3, 1), "mse", data, 2)


def test_a_loss_may_be_a_plain_number() -> None:
    class Plain(tg.FunctionTask):
        def gradient(self, view: Tensor, turn: Turn) -> Gradient:
            return Gradient(0.5, torch.ones_like(view))  # type: ignore[arg-type]

    task = Plain(torch.zeros(4), lambda view, worker, step: view)
    run = RunSetup(task, tg.rules.sgd(0.1), tg.Async(), Sharding.divide(task.layout, 1), 1, 9)
    start = WorkerStart(0, 0, 0, NO_ROW, (0,), (1,))
    computed = WorkerProcess(run, start, lambda payload, out: None).gradient(
        Compute(0, 0, 0, (1,), {}, 0.0)
    )
    assert computed is not None
    assert computed.loss == 0.5
