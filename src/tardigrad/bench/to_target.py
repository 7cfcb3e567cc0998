"""Time to a target loss where workers keep given step times: ours, and DistributedDataParallel.

Both take the same steps' times from the same model of a cluster, and batches from the same task.
Time counts from the first gradient's start to the first evaluated version at or below the target;
evaluation happens beside the training and takes nothing from it.
"""

import os
import sys
import tempfile
import time
from typing import Any

import ray
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tardigrad.clusters import StepTimes, TimedCluster
from tardigrad.rules import Rule
from tardigrad.runtime.crew import Crew
from tardigrad.runtime.options import Processes, Scenario
from tardigrad.runtime.training import train
from tardigrad.tasks import ModuleTask, Turn

MOMENTUM = 0.9
EVALUATE_EVERY = 10
"""Steps of DistributedDataParallel between evaluations."""


def seconds_of_train(
    task: ModuleTask,
    rule: Rule,
    times: TimedCluster,
    target: float,
    updates: int,
    crew: Crew | None = None,
) -> float | None:
    """Asynchronous training on this runtime; None where so many updates are not enough."""
    every = EVALUATE_EVERY * times.workers  # as many gradients as the other way
    run = train(
        task,
        rule,
        workers=times.workers,
        updates=updates,
        evaluation=every,
        processes=Processes(crew=crew),
        scenario=Scenario(impose=times),
    )
    for record in run.history.records:
        if record["update"] and record["validation_loss"] <= target:
            return float(record["time_s"])
    return None


def seconds_of_ddp(
    task: ModuleTask,
    module: nn.Module,
    lr: float,
    times: TimedCluster,
    target: float,
    steps: int,
) -> float | None:
    """DistributedDataParallel on gloo with SGD; None where so many steps are not enough.

    `module` is the task's, with its initial parameters, and returns log-probabilities.
    """
    actor: Any = ray.remote(_Replica)
    replicas = [actor.options(num_cpus=0).remote() for _ in range(times.workers)]
    try:
        with tempfile.TemporaryDirectory() as folder:
            where = f"file://{folder}/meeting"
            met = [r.meet.remote(where, rank, times.workers) for rank, r in enumerate(replicas)]
            ray.get(met)
        told = ray.put((task, module, lr, times.realise(0), target, steps))
        found: list[float | None] = ray.get([r.train.remote(told) for r in replicas])
        return found[0]
    finally:
        for replica in replicas:
            ray.kill(replica)


class _Replica:
    def meet(self, where: str, rank: int, replicas: int) -> None:
        torch.set_num_threads(1)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=replicas)

    def train(self, told: tuple[Any, ...]) -> float | None:
        task, module, lr, times, target, steps = told
        model = DistributedDataParallel(module.to(task.device, task.dtype))
        optimizer = torch.optim.SGD(model.parameters(), lr, MOMENTUM, nesterov=True)
        rank, replicas = dist.get_rank(), dist.get_world_size()
        reached = torch.zeros(1)
        dist.barrier()
        began = time.perf_counter()
        for step in range(steps):
            self._step(task, model, optimizer, Turn(rank, step, step * replicas + rank), times)
            if (step + 1) % EVALUATE_EVERY == 0:
                took = time.perf_counter() - began
                if rank == 0:
                    reached[0] = self._loss(task, model) <= target
                dist.broadcast(reached, 0)
                dist.barrier()
                if reached:
                    return took
                began = time.perf_counter() - took  # the evaluation does not count
        return None

    @staticmethod
    def _step(
        task: ModuleTask,
        model: DistributedDataParallel,
        optimizer: torch.optim.Optimizer,
        turn: Turn,
        times: StepTimes,
    ) -> None:
        """The imposed time is that of the gradient; then all meet in backward's all-reduce."""
        until = time.perf_counter() + float(times.step_s(turn.worker, turn.step))
        inputs, targets = task.batch(turn)
        optimizer.zero_grad()
        loss = nn.functional.nll_loss(model(inputs), targets)
        time.sleep(max(0.0, until - time.perf_counter()))
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    @staticmethod
    def _loss(task: ModuleTask, model: nn.Module) -> float:
        params = nn.utils.parameters_to_vector(model.parameters()).detach()
        return float(task.evaluate(params, (), "validation")["loss"])
