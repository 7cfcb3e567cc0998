"""A task made of any `nn.Module`, a loss and data."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tardigrad.core import keys
from tardigrad.core.layout import Layout, flatten
from tardigrad.tasks.augment import AUGMENTS, Augment, augmentation
from tardigrad.tasks.checks import check_dense, check_parameters
from tardigrad.tasks.losses import Loss, draws_nothing, hits, loss_function, weighs_equally
from tardigrad.tasks.randomness import keyed
from tardigrad.tasks.sampling import Sampling, sampler
from tardigrad.tasks.split import Data
from tardigrad.tasks.statistics import BatchNormStatistics
from tardigrad.tasks.structure import has_random_layers, is_known, keeps_samples_apart
from tardigrad.tasks.task import Gradient, Turn

Precision = Literal["full", "tf32", "bf16"]
CHUNK = 1000
"""Samples per forward pass in evaluation: bounds memory, and does not depend on the batch size."""


class ModuleTask:
    """The task of fitting `module` to `data` by `loss`.

    module: copied, so yours is never touched. Parameters that require gradients are learned;
        others stay as they are.
    loss: (outputs, targets) -> mean scalar, or "cross_entropy", "nll", "mse".
    sampling: "independent", "epoch" or "partition" (`tasks.sampling`); the last needs `workers`.
    augment: "pad_crop_flip", "rotate_zoom" or (inputs, stream) -> inputs.
    stochastic: whether the forward pass draws random numbers. None: it may, unless all layers and
        the loss are known not to (`tasks.structure`). Where it may, torch's, Python's and NumPy's
        generators are seeded by (seed, "dropout", worker, step) around it and put back (30 µs);
        False spares that, and then it must not draw.
    dtype: of parameters and floating-point data; None keeps the module's.
    precision: of products: "full"; "tf32" rounds their inputs to 10 bits on GPUs that can; "bf16"
        runs the forward pass in bfloat16 where that is safe (autocast); parameters stay in dtype.
    channels_last: keep images and filters channels last in memory, as convolutions on GPUs want.

    A gradient is eager, one at a time, and a pure function of (view, turn). The view is copied
    into the parameters of the task's own module, each of which torch has placed on a 64-byte
    boundary: where a tensor lies changes the bits of a product with batch size 1, and a slice of
    a flat vector lies anywhere. So the bits are those of a plain module's backward pass.

    BatchNorm's statistics come with the gradient and are folded when it is applied
    (`tasks.statistics`). Other modules that change their own buffers in the forward pass
    (spectral norm) would not be pure, and are not supported. Neither is a forward pass that draws
    from a generator of its own, or does something else from some step on: the fast engine compiles
    what it sees once.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: str | Loss,
        data: Data,
        batch_size: int = 128,
        *,
        sampling: Sampling = "independent",
        workers: int | None = None,
        seed: int = 0,
        augment: str | Augment | None = None,
        stochastic: bool | None = None,
        device: str | torch.device = "cpu",
        dtype: str | torch.dtype | None = None,
        precision: Precision = "full",
        channels_last: bool = False,
    ) -> None:
        if precision not in ("full", "tf32", "bf16"):
            raise ValueError(f"precision must be 'full', 'tf32' or 'bf16', got {precision!r}")
        self.precision = precision
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.seed = seed
        self.device = _device(device)
        self.dtype = dtype_of(dtype, module)
        self.module = copy.deepcopy(module).to(self.device, self.dtype).train()
        """Its own copy: each gradient writes its view into the parameters."""
        trainable = {n: p for n, p in self.module.named_parameters() if p.requires_grad}
        if not trainable:
            raise ValueError("module has no parameters that require gradients: nothing to learn")
        check_dense(self.module)
        for parameter in trainable.values():  # its own memory, so aligned as torch aligns it
            parameter.data = parameter.detach().clone(memory_format=torch.contiguous_format)
        self.layout = Layout.of(trainable)
        self._start = flatten(trainable)
        check_parameters(self._start)
        if channels_last:
            self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._parameters: list[Tensor] = list(trainable.values())
        self._statistics = BatchNormStatistics(self.module)
        self._loss = loss_function(loss)
        self._augment = augmentation(augment)
        known = is_known(self.module) and draws_nothing(self._loss)
        self.stochastic = has_random_layers(self.module) if stochastic is None else stochastic
        self._may_draw = self.stochastic or (stochastic is None and not known)
        self.data = data.to(self.device, self.dtype)
        self.epoch_size = len(self.data.train)
        self._sampler = sampler(sampling, self.epoch_size, batch_size, seed, workers)

    @property
    def splits(self) -> tuple[str, ...]:
        """Those its data has."""
        return self.data.splits

    def start(self) -> Tensor:
        return self._start.clone()

    def start_buffers(self) -> tuple[Tensor, ...]:
        """(running mean, running variance, batches counted) of each BatchNorm, in module order."""
        return self._statistics.start()

    def fold(self, buffers: tuple[Tensor, ...], batch: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return self._statistics.fold(buffers, batch)

    def gradient(self, view: Tensor, turn: Turn) -> Gradient:
        inputs, targets = self.batch(turn)
        with self._drawing("dropout", turn.worker, turn.step):
            loss, pieces = self.backward(view, inputs, targets)
        for name, piece in zip(self.layout.names, pieces, strict=True):
            if piece.layout != torch.strided:  # by F.embedding: layers were looked at before
                raise ValueError(
                    f"the gradient of {name} is sparse, but rules and shards take whole vectors: "
                    "use sparse=False"
                )
        flat = torch.cat([piece.reshape(-1) for piece in pieces])
        return Gradient(loss.detach(), flat, self._statistics.taken())

    def backward(
        self, view: Tensor, inputs: Tensor, targets: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The loss and its gradient per tensor; BatchNorm's statistics are left in the module."""
        self._place(view)
        self._statistics.clear()
        with self.products():
            with self._autocast():
                loss = self._loss(self.module(inputs), targets)
            if loss.dim() != 0:
                raise ValueError(
                    f"loss must return a scalar, the mean over the batch, got shape "
                    f"{tuple(loss.shape)}: use reduction='mean'"
                )
            return loss, torch.autograd.grad(loss, self._parameters, materialize_grads=True)

    def fold_(self, buffers: tuple[Tensor, ...]) -> None:
        """Fold the statistics that `backward` left in the module, in place."""
        self._statistics.fold_(buffers)

    def evaluate(
        self, params: Tensor, buffers: tuple[Tensor, ...], split: str
    ) -> Mapping[str, float]:
        """Mean loss, and accuracy where targets are classes; empty where there is no such split."""
        data = self.data.split(split)
        if data is None:
            return {}
        self._place(params)
        self._statistics.put(buffers)
        # Asked for once, at the end: a GPU would wait at every question.
        losses, right = list[Tensor](), list[Tensor]()
        sizes, counted = list[int](), 0
        self.module.eval()
        try:
            with torch.no_grad(), self._drawing("evaluation"):
                for at in range(0, len(data), CHUNK):
                    # Copied, so that bits do not depend on where the data happens to lie.
                    inputs = data.inputs[at : at + CHUNK].clone()
                    targets = data.targets[at : at + CHUNK]
                    outputs = self.module(inputs)
                    losses.append(self._loss(outputs, targets))
                    sizes.append(len(inputs))
                    hit = hits(outputs, targets)
                    if hit is not None:
                        right.append(hit.sum())
                        counted += hit.numel()
        finally:
            self.module.train()
        loss = 0.0
        for mean, size in zip(torch.stack(losses).tolist(), sizes, strict=True):
            loss += mean * size
        metrics = {"loss": loss / len(data)}
        if counted:
            metrics["accuracy"] = sum(torch.stack(right).tolist()) / counted
        return metrics

    def indices(self, turn: Turn) -> Tensor:
        """Which training samples this gradient sees."""
        return self.indices_of([turn.worker], [turn.step], [turn.row])[0]

    def indices_of(
        self, workers: npt.ArrayLike, steps: npt.ArrayLike, rows: npt.ArrayLike
    ) -> Tensor:
        """The same for many turns at once: (turns, batch)."""
        turns = (np.asarray(ids, dtype=np.int64) for ids in (workers, steps, rows))
        return torch.from_numpy(self._sampler(*turns)).to(self.device)

    def batch(self, turn: Turn) -> tuple[Tensor, Tensor]:
        """Inputs and targets of this gradient, augmented."""
        chosen = self.indices(turn)
        inputs, targets = self.data.train.inputs[chosen], self.data.train.targets[chosen]
        if self._augment is not None:
            stream = keys.key(self.seed, "augment", turn.worker, turn.step)
            ours = any(self._augment is known for known in AUGMENTS.values())
            with nullcontext() if ours else keyed(stream, self.device):
                inputs = self._augment(inputs, stream)
        return inputs, targets

    def batches(
        self, workers: npt.ArrayLike, steps: npt.ArrayLike, rows: npt.ArrayLike
    ) -> tuple[Tensor, Tensor]:
        """The same for many turns at once, stacked."""
        if self._augment is not None:
            turns = zip(np.asarray(workers), np.asarray(steps), np.asarray(rows), strict=True)
            pairs = [self.batch(Turn(*map(int, turn))) for turn in turns]
            return torch.stack([p[0] for p in pairs]), torch.stack([p[1] for p in pairs])
        chosen = self.indices_of(workers, steps, rows)
        return self.data.train.inputs[chosen], self.data.train.targets[chosen]

    @property
    def augments(self) -> bool:
        """Whether a batch is more than the samples at its indices."""
        return self._augment is not None

    @property
    def has_statistics(self) -> bool:
        """Whether gradients carry BatchNorm statistics."""
        return bool(self._statistics)

    @property
    def averages(self) -> bool:
        """Whether the gradient of several batches as one is known to be the mean of theirs. Of a
        subclass, which may compute another loss, nothing is known."""
        if type(self) is not ModuleTask:
            return False
        train = self.data.train
        dims = keeps_samples_apart(self.module, train.inputs.dim())
        return dims is not None and weighs_equally(self._loss, dims, train.targets)

    @property
    def convolves(self) -> bool:
        """Whether the model has convolutions."""
        return any(isinstance(m, nn.modules.conv._ConvNd) for m in self.module.modules())

    def differs(self, other: "ModuleTask") -> str | None:
        """What the two tasks differ in beside their seeds and initial parameters; None if nothing.

        Where nothing, one compiled gradient serves both.
        """
        for name in ("layout", "batch_size", "device", "dtype", "precision", "_loss"):
            if getattr(self, name) != getattr(other, name):
                return name.strip("_")
        if str(self.module) != str(other.module):
            return "model"
        if not _equal(self._fixed(), other._fixed()):
            return "what the model does not learn"
        mine, theirs = (t.data.train for t in (self, other))
        if not _equal([mine.inputs, mine.targets], [theirs.inputs, theirs.targets]):
            return "training data"
        return None

    def _fixed(self) -> list[Tensor]:
        """The module's tensors that are never learned."""
        learned = set(self.layout.names)
        held = [p for n, p in self.module.named_parameters() if n not in learned]
        return held + list(self.module.buffers())

    def statistics_zeros(self) -> tuple[Tensor, ...]:
        """What `functional_loss_and_statistics` fills; under vmap it needs a batch of them."""
        return self._statistics.zeros()

    def functional_loss(self, params: Tensor, inputs: Tensor, targets: Tensor) -> Tensor:
        """The loss as a pure function of the flat parameters, for `torch.func` (no BatchNorm)."""
        return self.loss_of(self.layout.unflatten(params), inputs, targets)

    def loss_of(self, params: Mapping[str, Tensor], inputs: Tensor, targets: Tensor) -> Tensor:
        """The same of the parameters by name."""
        return self._loss(functional_call(self.module, dict(params), (inputs,)), targets)

    def functional_loss_and_statistics(
        self, params: Tensor, inputs: Tensor, targets: Tensor, zeros: tuple[Tensor, ...]
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same with BatchNorm: the batch's statistics are returned in the `zeros` given."""
        return self.loss_and_statistics_of(self.layout.unflatten(params), inputs, targets, zeros)

    def loss_and_statistics_of(
        self,
        params: Mapping[str, Tensor],
        inputs: Tensor,
        targets: Tensor,
        zeros: tuple[Tensor, ...],
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same of the parameters by name."""
        named = dict(zip(self._statistics.names, zeros, strict=True))
        outputs = functional_call(self.module, {**params, **named}, (inputs,))
        return self._loss(outputs, targets), tuple(named.values())

    def _place(self, flat: Tensor) -> None:
        if flat.shape != self._start.shape or flat.dtype != self.dtype:
            raise ValueError(
                f"parameters must be a flat {self.dtype} vector of {self.layout.size} numbers, "
                f"got {flat.dtype} {tuple(flat.shape)}"
            )
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, list(self.layout.unflatten(flat).values()))

    @contextmanager
    def products(self) -> Iterator[None]:
        """Products and convolutions on the GPU in the chosen precision, and always the same way,
        whatever the process has set: around the forward and the backward pass."""
        if self.device.type != "cuda":
            yield
            return
        matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
        before = (matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark)
        matmul.allow_tf32 = cudnn.allow_tf32 = self.precision == "tf32"
        cudnn.deterministic, cudnn.benchmark = True, False
        try:
            yield
        finally:
            matmul.allow_tf32, cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark = before

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision != "bf16":
            return nullcontext()
        return torch.autocast(self.device.type, torch.bfloat16)

    def _drawing(self, purpose: str, *ids: int) -> AbstractContextManager[object]:
        """Around what may draw random numbers."""
        if not self._may_draw:
            return nullcontext()
        return keyed(keys.key(self.seed, purpose, *ids), self.device)


def initialised(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module whose random initial weights are keyed by the seed; no generator is touched."""
    with keyed(keys.key(seed, "init")):
        return make()


def _device(choice: str | torch.device) -> torch.device:
    try:
        device = torch.device(choice)
    except RuntimeError as error:
        raise ValueError(
            f"device = {choice!r} is not one that torch knows: use 'cpu' or 'cuda'"
        ) from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device = {str(choice)!r}, but torch sees no GPU here: use device='cpu'")
    return device


def dtype_of(choice: str | torch.dtype | None, module: nn.Module | None = None) -> torch.dtype:
    """The dtype of that name; None is what the module has."""
    if choice is None:
        found = {p.dtype for p in module.parameters()} if module is not None else set()
        if len(found) != 1:
            raise ValueError(
                f"module mixes {sorted(map(str, found))}: choose one with dtype='float32'"
            )
        return found.pop()
    dtypes = {"float32": torch.float32, "float64": torch.float64}
    if isinstance(choice, str):
        if choice not in dtypes:
            raise ValueError(f"dtype must be 'float32' or 'float64', got {choice!r}")
        return dtypes[choice]
    return choice


def _equal(some: list[Tensor], others: list[Tensor]) -> bool:
    """The same tensors, or equal ones."""
    return len(some) == len(others) and all(
        a is b or (a.shape == b.shape and torch.equal(a, b))
        for a, b in zip(some, others, strict=True)
    )
