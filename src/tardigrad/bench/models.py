"""Large models: what asynchrony costs beside a plain training loop of the same model."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tardigrad.bench.loops import MeasuredLoop, engine_loop, in_turn, machine
from tardigrad.clusters import Gamma
from tardigrad.core.checks import one_of
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.fast.build_on_cpu import MOST
from tardigrad.policies import Async
from tardigrad.rules import gap_aware
from tardigrad.scheduling import schedule
from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.cifar import WideResNet, resnet20
from tardigrad.tasks.losses import loss_function
from tardigrad.tasks.module import initialised
from tardigrad.tasks.precision import Precision, autocast
from tardigrad.tasks.transformer import Transformer

SAMPLES = 4096
CHARACTERS, CONTEXT = 65, 64


class Model(NamedTuple):
    """A module, its loss, and samples drawn at random: how fast it is does not depend on them."""

    make: Callable[[], nn.Module]
    loss: str
    images: bool
    updates: dict[str, int]
    """In a slice, by device."""

    def data(self) -> Data:
        draw = torch.Generator().manual_seed(0)
        if self.images:
            pixels = (SAMPLES, 3, 32, 32)
            images = torch.randint(0, 256, pixels, generator=draw, dtype=torch.uint8)
            return Data(Split(images, torch.randint(0, 10, (SAMPLES,), generator=draw)))
        text = torch.randint(0, CHARACTERS, (2, SAMPLES, CONTEXT), generator=draw)
        return Data(Split(text[0].to(torch.uint8), text[1].to(torch.uint8)))


MODELS = {
    "ResNet-20": Model(resnet20, "cross_entropy", True, {"cpu": 4, "cuda": 200}),
    "WideResNet-16-4": Model(
        lambda: WideResNet(depth=16, widen=4), "cross_entropy", True, {"cpu": 2, "cuda": 50}
    ),
    "transformer": Model(
        lambda: Transformer(CHARACTERS, 2, 4, 64, CONTEXT, 0.0),
        "token_cross_entropy",
        False,
        {"cpu": 16, "cuda": 1000},
    ),
}


def bench_models(
    device: str = "cpu",
    quick: bool = False,
    models: Sequence[str] = tuple(MODELS),
    batch_size: int = 128,
    workers: int = 32,
    repeats: int = 5,
    updates: int | None = None,
) -> ResultTable:
    """ResNet-20, WideResNet-16-4 and a transformer, 32 workers with Gap-Aware: over a plain loop.

    plain: one worker, torch.optim.SGD with Nesterov's momentum, batches of 128 taken from data on
    the device; on a GPU the whole step is one captured graph. On a GPU also in TF32 and bfloat16,
    images and filters channels last. There the fast engine takes cuDNN's deterministic kernels,
    which the plain loop need not: "deterministic" is the plain loop with them, "compiled" that one
    compiled, the best that a sequential loop can do. quick: ResNet-20 alone.
    """
    if quick:
        models = ("ResNet-20",)
    for name in models:
        one_of("models", name, MODELS)
    on_gpu = device == "cuda"
    plain_ones: dict[str, dict[str, bool]] = {"plain": {}}
    if on_gpu:
        plain_ones["deterministic"] = {"deterministic": True}
        plain_ones["compiled"] = {"deterministic": True, "compiled": True}
    settings: tuple[Precision, ...] = ("full", "tf32", "bf16") if on_gpu else ("full",)
    rows: list[tuple[str | float, ...]] = []
    for name in models:
        for precision in settings:
            model, lines = MODELS[name], list[str]()
            slices = updates or model.updates[device]
            made = schedule(Async(), Gamma(workers=workers), (repeats + 1) * (slices + MOST))
            # Kernels of full precision are faster with channels first.
            channels_last = precision != "full" and model.images
            task = ModuleTask(
                initialised(model.make, 0),
                model.loss,
                model.data(),
                batch_size,
                device=device,
                precision=precision,
                channels_last=channels_last,
            )
            loops: dict[str, MeasuredLoop] = {
                way: PlainLoop(model, task, channels_last, **how) for way, how in plain_ones.items()
            }
            loops["fast"] = engine_loop(made, task, gap_aware(lr=0.001), "fast", lines.append)
            took = in_turn(loops, dict.fromkeys(loops, slices), repeats, device)
            rows.append(
                (
                    f"{name}, {precision}",
                    *(1e6 * statistics.median(each) for each in took.values()),
                    *(
                        statistics.median(
                            a / b for a, b in zip(took["fast"], took[way], strict=True)
                        )
                        for way in plain_ones
                    ),
                    "; ".join(line for line in lines if line != "engine: fast") or "in batches",
                )
            )
    return ResultTable(
        title=f"Microseconds per update on {machine(device)}, batches of {batch_size}, {workers} "
        f"workers, median of {repeats} slices",
        columns=(
            "model",
            *plain_ones,
            "fast",
            *(f"fast ÷ {way}" for way in plain_ones),
            "the fast engine's gradients",
        ),
        rows=tuple(rows),
    )


class PlainLoop:
    """One worker's training; on a GPU every step is the replay of one captured graph."""

    def __init__(
        self,
        model: Model,
        task: ModuleTask,
        channels_last: bool = False,
        deterministic: bool = False,
        compiled: bool = False,
    ) -> None:
        self.task, self.deterministic = task, deterministic
        self.module = initialised(model.make, 0).to(task.device, task.dtype).train()
        if channels_last:
            self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._function = loss_function(model.loss)
        self.loss: Callable[[Tensor, Tensor], Tensor] = self._loss
        if compiled:
            self.loss = torch.compile(self._loss, dynamic=False)
        on_gpu = task.device.type == "cuda"
        self.optimizer = torch.optim.SGD(
            self.module.parameters(), lr=0.001, momentum=0.9, nesterov=True, fused=compiled or None
        )
        self.graph = self._captured() if on_gpu else None

    def __call__(self, updates: int) -> None:
        for _ in range(updates):
            if self.graph is not None:
                self.graph.replay()
            else:
                self._step()

    def _step(self) -> Tensor:
        train = self.task.data.train
        chosen = torch.randint(len(train), (self.task.batch_size,), device=self.task.device)
        inputs = train.inputs.index_select(0, chosen)
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(inputs, train.targets.index_select(0, chosen))
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.detach()

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        with autocast(self.task.device, self.task.precision):
            return self._function(self.module(inputs), targets)

    def _captured(self) -> torch.cuda.CUDAGraph:
        with self._products():
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(3):
                    self._step()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                # Replays write where the capture did, so what it made must live as long.
                self.last = self._step()
        return graph

    @contextmanager
    def _products(self) -> Iterator[None]:
        """The task's precision; torch's own choice of kernels unless deterministic."""
        with self.task.products():
            torch.backends.cudnn.deterministic = self.deterministic
            yield
