"""Large models: what asynchrony costs beside a plain training loop of the same model."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tardigrad.bench.loops import MeasuredLoop, engine_loop, in_turn, machine
from tardigrad.clusters import Gamma
from tardigrad.core.checks import one_of
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.fast.build_on_cpu import MOST
from tardigrad.engine.memory import amount
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
TOKENS = 50_257


class Model(NamedTuple):
    """A module, its loss, and samples drawn at random: how fast it is does not depend on them."""

    make: Callable[[], nn.Module]
    loss: str
    images: bool
    updates: dict[str, int]
    """In a slice, by device."""
    alphabet: int = CHARACTERS
    context: int = CONTEXT
    batch_size: int = 128
    workers: int = 32

    def data(self) -> Data:
        draw = torch.Generator().manual_seed(0)
        if self.images:
            pixels = (SAMPLES, 3, 32, 32)
            images = torch.randint(0, 256, pixels, generator=draw, dtype=torch.uint8)
            return Data(Split(images, torch.randint(0, 10, (SAMPLES,), generator=draw)))
        text = torch.randint(0, self.alphabet, (2, SAMPLES, self.context), generator=draw)
        text = text.to(torch.uint8 if self.alphabet <= 256 else torch.int32)
        return Data(Split(text[0], text[1]))


def gpt(alphabet: int, layers: int, heads: int, width: int, context: int) -> Model:
    """A language model for 8 workers, whose batches are 8 texts."""
    return Model(
        lambda: Transformer(alphabet, layers, heads, width, context, 0.0),
        "token_cross_entropy",
        False,
        {"cuda": 16},
        alphabet,
        context,
        batch_size=8,
        workers=8,
    )


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
    "GPT-2 small": gpt(TOKENS, layers=12, heads=12, width=768, context=512),
}


def bench_models(
    device: str = "cpu",
    quick: bool = False,
    models: Sequence[str] | None = None,
    batch_size: int | None = None,
    workers: int | None = None,
    repeats: int = 5,
    updates: int | None = None,
    precisions: Sequence[Precision] | None = None,
    against: Sequence[str] | None = None,
    timing: AbstractContextManager[object] | None = None,
) -> ResultTable:
    """Large models with Gap-Aware, over a plain loop: ResNet-20, WideResNet-16-4, transformers.

    plain: one worker, torch.optim.SGD with Nesterov's momentum, batches taken from data on the
    device; on a GPU the whole step is one captured graph. On a GPU also in TF32 and bfloat16,
    images and filters channels last. There the fast engine takes cuDNN's deterministic kernels,
    which the plain loop need not: "deterministic" is the plain loop with them, "compiled" that one
    compiled, the best that a sequential loop can do. quick: ResNet-20 alone.

    against: which of these loops; left out: all.
    timing: entered around what is timed, such as a lock: then processes that measure a model each
    can compile side by side.
    """
    known = [name for name, model in MODELS.items() if device in model.updates]
    models = known[:1] if quick else known if models is None else models
    for name in models:
        one_of("models", name, MODELS)
    on_gpu = device == "cuda"
    plain_ones: dict[str, dict[str, bool]] = {"plain": {}}
    if on_gpu:
        plain_ones["deterministic"] = {"deterministic": True}
        plain_ones["compiled"] = {"deterministic": True, "compiled": True}
    settings: Sequence[Precision] = ("full", "tf32", "bf16") if on_gpu else ("full",)
    for way in against or ():
        one_of("against", way, plain_ones)
    plain_ones = {way: plain_ones[way] for way in against or plain_ones}
    rows: list[tuple[str | float, ...]] = []
    for name in models:
        model = MODELS[name]
        model = model._replace(
            batch_size=batch_size or model.batch_size,
            workers=workers or model.workers,
            updates={device: updates or model.updates[device]},
        )
        for precision in precisions or settings:
            lines: list[str] = []
            loops = _loops(model, precision, device, plain_ones, repeats, lines)
            with timing or nullcontext():
                slices = dict.fromkeys(loops, model.updates[device])
                took = in_turn(loops, slices, repeats, device)
            fast = took["fast"]
            rows.append(
                (
                    f"{name}, {precision}: {model.workers} workers, batches of {model.batch_size}",
                    *(1e6 * statistics.median(each) for each in took.values()),
                    *(
                        statistics.median(a / b for a, b in zip(fast, took[way], strict=True))
                        for way in plain_ones
                    ),
                    "; ".join(line for line in lines if line != "engine: fast") or "in batches",
                )
            )
    return ResultTable(
        title=f"Microseconds per update on {machine(device)}, median of {repeats} slices",
        columns=(
            "model",
            *plain_ones,
            "fast",
            *(f"fast ÷ {way}" for way in plain_ones),
            "the fast engine's gradients",
        ),
        rows=tuple(rows),
    )


def _loops(
    model: Model,
    precision: Precision,
    device: str,
    plain_ones: dict[str, dict[str, bool]],
    repeats: int,
    lines: list[str],
) -> dict[str, MeasuredLoop]:
    """All of a model; the lines that the fast engine says, and on a GPU what it took to make it."""
    updates = (repeats + 1) * (model.updates[device] + MOST)
    made = schedule(Async(), Gamma(workers=model.workers), updates)
    # Kernels of full precision are faster with channels first.
    channels_last = precision != "full" and model.images
    task = ModuleTask(
        initialised(model.make, 0),
        model.loss,
        model.data(),
        model.batch_size,
        device=device,
        precision=precision,
        channels_last=channels_last,
    )
    if device == "cuda":
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
    fast = engine_loop(made, task, gap_aware(lr=0.001), "fast", lines.append)
    if device == "cuda":
        torch.cuda.empty_cache()
        lines.append(f"{amount(torch.cuda.memory_reserved() - before)} were taken")
    loops: dict[str, MeasuredLoop] = {
        way: PlainLoop(model, task, channels_last, **how) for way, how in plain_ones.items()
    }
    return loops | {"fast": fast}


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
