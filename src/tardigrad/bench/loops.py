"""The engines as loops, what they are measured against, and slices of each in turn."""

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tardigrad.engine.choose import Engine, choose
from tardigrad.engine.job import Job
from tardigrad.engine.options import Limits
from tardigrad.engine.run import Say
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.mnist import mlp
from tardigrad.tasks.module import initialised

IMAGES = 50_000
MeasuredLoop = Callable[[int], int | None]
"""Makes so many updates; tells how many where it made a few more."""


def perceptron(batch_size: int, device: str, dtype: str = "float32") -> ModuleTask:
    """FASGD's 784-200-10 on images that can be learned, about as bright as MNIST's.

    Of noise alone a network soon learns to answer the same to all: every hidden unit is dead, and
    what is then measured is arithmetic with zeros and with numbers too small to be normal.
    """
    draw = torch.Generator().manual_seed(0)
    patterns = torch.rand(10, 1, 28, 28, generator=draw) < 0.15
    labels = torch.randint(0, 10, (IMAGES,), generator=draw)
    drawn = torch.randint(0, 256, (IMAGES, 1, 28, 28), generator=draw, dtype=torch.uint8)
    # Half of a pattern's pixels can be seen, and one in twenty is bright for no reason.
    images = 255 * (patterns[labels] & (drawn < 128) | (drawn >= 243)).to(torch.uint8)
    guessed = torch.rand(IMAGES, generator=draw) < 0.1  # so that there is always an error left
    labels[guessed] = torch.randint(0, 10, (int(guessed.sum()),), generator=draw)
    module = initialised(lambda: mlp(200, "mnist"), 0)
    data = Data(Split(images, labels))
    return ModuleTask(module, "nll", data, batch_size, device=device, dtype=dtype)


def plain_loop(task: ModuleTask) -> MeasuredLoop:
    """One worker and `torch.optim.SGD`."""
    model, (inputs, targets) = _model(task), _data(task)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def run(updates: int) -> None:
        for _ in range(updates):
            chosen = torch.randint(len(inputs), (task.batch_size,), device=task.device)
            optimizer.zero_grad()
            F.nll_loss(model(inputs[chosen]), targets[chosen]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        _finish(task)

    return run


class NaiveLoop:
    """FASGD for workers that arrive in the given order, each with its own copy of the model."""

    def __init__(self, task: ModuleTask, order: list[int], workers: int) -> None:
        self.task, self.order = task, order
        self.model = _model(task)
        self.server = [p.detach().clone() for p in self.model.parameters()]
        self.copies = [[p.clone() for p in self.server] for _ in range(workers)]
        self.version, self.read = 0, [0] * workers
        self.squares = [torch.zeros_like(p) for p in self.server]
        self.means = [torch.zeros_like(p) for p in self.server]
        self.deviations = [torch.ones_like(p) for p in self.server]

    def __call__(self, updates: int) -> None:
        for _ in range(updates):
            worker = self.order[self.version % len(self.order)]
            grads = self._gradient(worker)
            self._apply(grads, self.version - self.read[worker] + 1)
            self.version += 1
            self.read[worker] = self.version
            self.copies[worker] = [p.clone() for p in self.server]
        _finish(self.task)

    def _gradient(self, worker: int) -> list[Tensor]:
        inputs, targets = _data(self.task)
        parameters = list(self.model.parameters())
        with torch.no_grad():
            for parameter, copy in zip(parameters, self.copies[worker], strict=True):
                parameter.copy_(copy)
        chosen = torch.randint(len(inputs), (self.task.batch_size,), device=self.task.device)
        loss = F.nll_loss(self.model(inputs[chosen]), targets[chosen])
        return list(torch.autograd.grad(loss, parameters))

    def _apply(self, grads: list[Tensor], staleness: int) -> None:
        for i, grad in enumerate(grads):
            self.squares[i].mul_(0.9).addcmul_(grad, grad, value=0.1)
            self.means[i].mul_(0.9).add_(grad, alpha=0.1)
            spread = (self.squares[i] - self.means[i] ** 2).clamp(min=0).add(1e-4).sqrt()
            self.deviations[i].mul_(0.9).add_(spread, alpha=0.1)
            self.server[i].sub_(0.005 * grad / (self.deviations[i] * staleness))


def engine_loop(
    made: Schedule, task: ModuleTask, rule: Rule, engine: Engine, say: Say = lambda line: None
) -> MeasuredLoop:
    """So many updates more of the schedule, by that engine.

    The fast engine on the CPU goes on to the end of its batch, less than `MOST` updates more, so
    that no slice applies gradients which another has computed.
    """
    execution = choose(engine, Job.on_one_shard(made, task, rule), say, Limits())

    def run(updates: int) -> int:
        before = execution.updates
        until = before + updates
        while execution.updates < until:
            execution.advance_to(made.updates if task.device.type == "cpu" else until)
        return execution.updates - before

    return run


def in_turn(
    loops: Mapping[str, MeasuredLoop], updates: Mapping[str, int], repeats: int, device: str
) -> dict[str, list[float]]:
    """Seconds per update of each loop, slice after slice in turn; a first round does not count."""
    took: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(repeats + 1):
        for name, loop in loops.items():
            took[name].append(per_update(loop, updates[name], device))
    return {name: slices[1:] for name, slices in took.items()}


def per_update(loop: MeasuredLoop, updates: int, device: str) -> float:
    """Seconds."""
    made: list[int | None] = []
    seconds = timed(lambda: made.append(loop(updates)), device)
    return seconds / (made[0] or updates)


def machine(device: str) -> str:
    """What is measured on, in words."""
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{torch.get_num_threads()} CPU threads, {torch.backends.cpu.get_cpu_capability()}"


def copy_bandwidth(device: str) -> float:
    """Bytes per second, read and written, of copying one large tensor onto another."""
    source = torch.ones(64 * 2**20, device=device)
    target = torch.zeros_like(source)
    best = float("inf")
    for _ in range(8):
        best = min(best, timed(lambda: target.copy_(source), device))
    return 2 * source.numel() * source.element_size() / best


def timed(run: Callable[[], object], device: str) -> float:
    """Seconds until the device has done it."""
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _model(task: ModuleTask) -> nn.Module:
    return initialised(lambda: mlp(200, "mnist"), 0).to(task.device, task.dtype)


def _data(task: ModuleTask) -> tuple[Tensor, Tensor]:
    return task.data.train.inputs, task.data.train.targets


def _finish(task: ModuleTask) -> None:
    if task.device.type == "cuda":
        torch.cuda.synchronize()
