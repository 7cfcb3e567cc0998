"""A task made of any `nn.Module`, a loss and data."""

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tardigrad.core import keys
from tardigrad.core.checks import require
from tardigrad.core.layout import Layout, flatten
from tardigrad.core.one_thread import OneThread
from tardigrad.tasks.augment import AUGMENTS, Augment, augmentation
from tardigrad.tasks.checks import check_batch_size, check_dense, check_parameters
from tardigrad.tasks.fixed_buffers import FixedBuffers
from tardigrad.tasks.losses import Loss, draws_nothing, weighs_equally
from tardigrad.tasks.measuring import Metric, check_metrics, measure
from tardigrad.tasks.objective import Objective
from tardigrad.tasks.precision import (
    Precision,
    autocast,
    check_precision,
    device_of,
    dtype_of,
    products,
)
from tardigrad.tasks.randomness import keyed
from tardigrad.tasks.samples import (
    Samples,
    labels_of,
    mapped,
    same_structure,
    take,
    tensors_in,
)
from tardigrad.tasks.sampling import Sampling, sampler
from tardigrad.tasks.split import Data, Split
from tardigrad.tasks.statistics import BatchNormStatistics
from tardigrad.tasks.structure import has_random_layers, is_known, keeps_samples_apart
from tardigrad.tasks.task import Gradient, Turn


class ModuleTask:
    """The task of fitting `module` to `data` by `loss`.

    module: copied, so yours is never touched. Parameters that require gradients are learned;
        others stay as they are.
    loss: (outputs, targets) -> mean scalar, or "cross_entropy", "nll", "mse"; "model" where the
        forward pass returns its own (`tasks.objective`), as Hugging Face's models do.
    data: (inputs, targets) as tensors or arrays, several inputs in a tuple or a dict by the forward
        pass's names, a map-style Dataset, which is read into memory; `Data.of` names several sets.
    metrics: (outputs, targets) -> number by name, of whole splits, evaluated with the loss.
    sampling: "independent", "epoch", "partition" or "by_label" (`tasks.sampling`); the last two
        need `workers`.
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
    (spectral norm) would not be pure, and are refused. Not supported either is one that draws
    from a generator of its own, or does something else from some step on: the fast engine compiles
    what it sees once.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: str | Loss,
        data: Any,
        batch_size: int = 128,
        *,
        metrics: Mapping[str, Metric] | None = None,
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
        self.precision = check_precision(precision)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.seed = seed
        self.device = device_of(device)
        self.dtype = dtype_of(dtype, module)
        self.module = copy.deepcopy(module).to(self.device, self.dtype).train()
        """Its own copy: each gradient writes its view into the parameters."""
        self.alone = OneThread()
        """Held by whoever uses that copy: runs in several threads may share the task."""
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
        self._buffers = FixedBuffers(self.module, self._statistics.buffer_names)
        self._objective = Objective(loss)
        self._metrics = check_metrics(metrics)
        self._augment = augmentation(augment)
        known = is_known(self.module) and draws_nothing(self._objective.function)
        self.stochastic = has_random_layers(self.module) if stochastic is None else stochastic
        self._may_draw = self.stochastic or (stochastic is None and not known)
        self.data = Data.of(data).to(self.device, self.dtype)
        require(
            self._augment is None or isinstance(self.data.train.inputs, Tensor),
            "augment changes one tensor of inputs, and these are several: leave it out",
        )
        for part in (self.data.train, self.data.validation, self.data.test):
            if part is not None:
                self._objective.check(self.module, part)
        check_batch_size(batch_size, self.data.train.inputs)
        self.epoch_size = len(self.data.train)
        labels = labels_of(self.data.train.targets)
        self._sampler = sampler(sampling, self.epoch_size, batch_size, seed, workers, labels)
        if self._objective.function is None:  # seen before the run whether there is a loss
            self._measure(self._start, self.start_buffers(), Split(*self._taken(slice(0, 1))), {})

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

    @property
    def leaves_view(self) -> bool:  # it is copied into the module
        mine, own = type(self), ModuleTask
        return mine.gradient is own.gradient and mine.backward is own.backward

    def gradient(self, view: Tensor, turn: Turn) -> Gradient:
        with self.alone:
            return self._gradient(view, turn)

    def _gradient(self, view: Tensor, turn: Turn) -> Gradient:
        inputs, targets = self.batch(turn)
        with self._drawing("dropout", turn.worker, turn.step):
            loss, pieces = self.backward(view, inputs, targets)
        self.check_buffers()
        for name, piece in zip(self.layout.names, pieces, strict=True):
            if piece.layout != torch.strided:  # by F.embedding: layers were looked at before
                raise ValueError(
                    f"the gradient of {name} is sparse, but rules and shards take whole vectors: "
                    "use sparse=False"
                )
        flat = torch.cat([piece.reshape(-1) for piece in pieces])
        return Gradient(loss.detach(), flat, self._statistics.taken())

    def backward(
        self, view: Tensor, inputs: Samples, targets: Samples
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The loss and its gradient per tensor; BatchNorm's statistics are left in the module."""
        self._place(view)
        self._statistics.clear()
        with self.products():
            with autocast(self.device, self.precision):
                _, loss = self._objective(self.module, inputs, targets)
            return loss, torch.autograd.grad(loss, self._parameters, materialize_grads=True)

    def check_buffers(self) -> None:
        """Refuse a forward pass that has changed buffers other than BatchNorm's."""
        self._buffers.check()

    def trained(self, params: Tensor, buffers: tuple[Tensor, ...]) -> nn.Module:
        """A copy of the module with these parameters and running buffers, ready for use outside."""
        module = copy.deepcopy(self.module)
        named = dict(module.named_parameters())
        with torch.no_grad():
            for name, value in self.layout.unflatten(params).items():
                named[name].copy_(value)
        self._statistics.restore(module, buffers)
        return module.eval()

    @property
    def statistics_momentum(self) -> float | None:
        """The one momentum of all BatchNorm layers; None where they differ, or are averaged."""
        return self._statistics.shared_momentum

    def evaluate(
        self, params: Tensor, buffers: tuple[Tensor, ...], split: str
    ) -> Mapping[str, float]:
        """Mean loss, accuracy where targets are classes, and the metrics; empty where there is no
        such split."""
        data = self.data.split(split)
        return {} if data is None else self._measure(params, buffers, data, self._metrics)

    def _measure(
        self,
        params: Tensor,
        buffers: tuple[Tensor, ...],
        data: Split,
        metrics: Mapping[str, Metric],
    ) -> dict[str, float]:
        with self.alone:
            self._place(params)
            self._statistics.put(buffers)
            self.module.eval()
            try:
                with torch.no_grad(), self._drawing("evaluation"):
                    return measure(self.module, self._objective, data, metrics)
            finally:
                self.module.train()

    def indices(self, turn: Turn) -> Tensor:
        """Which training samples this gradient sees."""
        return self.indices_of([turn.worker], [turn.step], [turn.row])[0]

    def indices_of(
        self, workers: npt.ArrayLike, steps: npt.ArrayLike, rows: npt.ArrayLike
    ) -> Tensor:
        """The same for many turns at once: (turns, batch)."""
        turns = (np.asarray(ids, dtype=np.int64) for ids in (workers, steps, rows))
        with self.alone:  # it keeps what it has drawn last
            return torch.from_numpy(self._sampler(*turns)).to(self.device)

    def batch(self, turn: Turn) -> tuple[Samples, Samples]:
        """Inputs and targets of this gradient, augmented."""
        inputs, targets = self._taken(self.indices(turn))
        if self._augment is not None:
            stream = keys.key(self.seed, "augment", turn.worker, turn.step)
            ours = any(self._augment is known for known in AUGMENTS.values())
            with nullcontext() if ours else keyed(stream, self.device):
                inputs = self._augment(inputs, stream)
        return inputs, targets

    def batches(
        self, workers: npt.ArrayLike, steps: npt.ArrayLike, rows: npt.ArrayLike
    ) -> tuple[Samples, Samples]:
        """The same for many turns at once, stacked."""
        if self._augment is not None:
            turns = zip(np.asarray(workers), np.asarray(steps), np.asarray(rows), strict=True)
            pairs = [self.batch(Turn(*map(int, turn))) for turn in turns]
            inputs, targets = zip(*pairs, strict=True)
            return torch.stack(inputs), mapped(lambda *parts: torch.stack(parts), *targets)
        return self._taken(self.indices_of(workers, steps, rows))

    def _taken(self, chosen: Tensor | slice) -> tuple[Samples, Samples]:
        train = self.data.train
        return take(train.inputs, chosen), take(train.targets, chosen)

    @property
    def is_plain(self) -> bool:
        """Whether a sample is one tensor and one target, and the loss a function of these."""
        return self.data.train.is_plain and self._objective.function is not None

    @property
    def augments(self) -> bool:
        """Whether a batch is more than the samples at its indices."""
        return self._augment is not None

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """Of the running buffers, in their order, in the module's `state_dict`."""
        return tuple(self._statistics.buffer_names)

    @property
    def has_statistics(self) -> bool:
        """Whether gradients carry BatchNorm statistics."""
        return bool(self._statistics)

    @property
    def averages(self) -> bool:
        """Whether the gradient of several batches as one is known to be the mean of theirs. Of a
        subclass, which may compute another loss, nothing is known."""
        train, loss = self.data.train, self._objective.function
        if type(self) is not ModuleTask or not self.is_plain or loss is None:
            return False
        dims = keeps_samples_apart(self.module, train.inputs.dim())
        return dims is not None and weighs_equally(loss, dims, train.targets)

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """How each tensor of the layout lies in the module's memory."""
        return tuple(parameter.stride() for parameter in self._parameters)

    @property
    def convolves(self) -> bool:
        """Whether the model has convolutions."""
        return any(isinstance(m, nn.modules.conv._ConvNd) for m in self.module.modules())

    def differs(self, other: "ModuleTask") -> str | None:
        """What the two tasks differ in beside their seeds and initial parameters; None if nothing.

        Where nothing, one compiled gradient serves both.
        """
        for name in ("layout", "batch_size", "device", "dtype", "precision"):
            if getattr(self, name) != getattr(other, name):
                return name
        if self._objective.function != other._objective.function:
            return "loss"
        if str(self.module) != str(other.module):
            return "model"
        if not _equal(self._fixed(), other._fixed()):
            return "what the model does not learn"
        mine, theirs = (t.data.train for t in (self, other))
        if not all(
            same_structure(a, b) and _equal(tensors_in(a), tensors_in(b))
            for a, b in ((mine.inputs, theirs.inputs), (mine.targets, theirs.targets))
        ):
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
        return self._functional(dict(params), inputs, targets)

    def _functional(self, tensors: dict[str, Tensor], inputs: Samples, targets: Samples) -> Tensor:
        def called(*args: Any, **named: Any) -> Any:
            return functional_call(self.module, tensors, args, named)

        with autocast(self.device, self.precision):
            return self._objective(called, inputs, targets)[1]

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
        loss = self._functional({**params, **named}, inputs, targets)
        return loss, tuple(named.values())

    def _place(self, flat: Tensor) -> None:
        if flat.shape != self._start.shape or flat.dtype != self.dtype:
            raise ValueError(
                f"parameters must be a flat {self.dtype} vector of {self.layout.size} numbers, "
                f"got {flat.dtype} {tuple(flat.shape)}"
            )
        with torch.no_grad():
            torch._foreach_copy_(self._parameters, list(self.layout.unflatten(flat).values()))

    def products(self) -> AbstractContextManager[None]:
        """Around the forward and the backward pass."""
        return products(self.device, self.precision)

    def _drawing(self, purpose: str, *ids: int) -> AbstractContextManager[object]:
        """Around what may draw random numbers."""
        if not self._may_draw:
            return nullcontext()
        return keyed(keys.key(self.seed, purpose, *ids), self.device)


def initialised(make: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module whose random initial weights are keyed by the seed; no generator is touched."""
    with keyed(keys.key(seed, "init")):
        return make()


def _equal(some: list[Tensor], others: list[Tensor]) -> bool:
    """The same tensors, or equal ones."""
    return len(some) == len(others) and all(
        a is b or (a.shape == b.shape and torch.equal(a, b))
        for a, b in zip(some, others, strict=True)
    )
