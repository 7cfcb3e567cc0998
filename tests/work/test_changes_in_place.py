"""Works of a user's own that change what they are given are refused, wherever they are run."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import tardigrad as tg
from tardigrad.core.layout import Sharding
from tardigrad.policies import Async
from tardigrad.protocol.worker_outputs import Compute
from tardigrad.recording.setup import RunSetup
from tardigrad.runtime.worker_process import WorkerProcess, WorkerStart
from tardigrad.tasks import Task, Turn, quadratic
from tests.work.heavy_ball import HeavyBall


@dataclass(frozen=True)
class InPlace(HeavyBall):
    """One step at rate 0.1, taken in the view itself, or momentum gathered in the state itself."""

    view: bool = True

    def run(
        self,
        task: Task,
        view: torch.Tensor,
        state: tuple[torch.Tensor],
        turn: Turn,
        batches: int,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> tg.Delivery[tuple[torch.Tensor]]:
        found = task.gradient(view, turn)
        changed = view if self.view else state[0]
        changed -= 0.1 * found.grad
        return tg.Delivery(found, state)


@pytest.mark.parametrize("view", [True, False])
def test_in_the_simulator(view: bool) -> None:
    with pytest.raises(ValueError, match=r"changed its view or its state in place.* x = x \+ y"):
        tg.simulate(
            quadratic(dimension=4),
            tg.rules.sgd(0.1),
            cluster=tg.Gamma(workers=2),
            updates=5,
            work=InPlace(view),
        )


@pytest.mark.parametrize("view", [True, False])
def test_in_a_worker_s_process(view: bool) -> None:
    task = quadratic(dimension=4)
    sharding = Sharding.divide(task.layout, 1)
    setup = RunSetup(task, tg.rules.sgd(0.1), Async(), sharding, 1, 5, work=InPlace(view))
    process = WorkerProcess(setup, WorkerStart(0, 0, 0, 0, (0,), (1,)), lambda payload, to: None)
    with pytest.raises(ValueError, match="changed its view or its state in place"):
        process.gradient(Compute(0, 0, 0, (0,), {}, 0.0))
