"""Gradients and evaluation of modules."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

import tardigrad as tg
from tardigrad.core.layout import flatten
from tardigrad.engine.choose import Engine
from tardigrad.tasks import Data, ModuleTask, Split, Turn, logistic_regression, measuring, mnist_cnn
from tardigrad.tasks.precision import Precision

TURN = Turn(worker=1, step=3, row=7)


def toy_data(samples: int = 60, features: int = 7, classes: int = 3) -> Data:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(samples, features, generator=generator)
    targets = torch.randint(classes, (samples,), generator=generator)
    return Data(Split(inputs, targets), validation=Split(inputs[:11], targets[:11]))


def perceptron() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(7, 13), nn.Tanh(), nn.Linear(13, 3))


def plain_gradient(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    module.zero_grad()
    F.cross_entropy(module(inputs), targets).backward()
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])  # type: ignore[union-attr]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("batch_size", [1, 8])
def test_gradient_has_the_bits_of_a_plain_backward_pass(
    dtype: torch.dtype, batch_size: int
) -> None:
    module = perceptron().to(dtype)
    task = ModuleTask(module, "cross_entropy", toy_data(), batch_size, dtype=dtype)
    out = task.gradient(task.start(), TURN)
    inputs, targets = task.batch(TURN)
    assert torch.equal(out.grad, plain_gradient(module, inputs, targets))
    assert torch.equal(out.loss, F.cross_entropy(module(inputs), targets).detach())
    assert out.buffers == ()


@pytest.mark.parametrize("offset", [0, 1, 3])
def test_where_the_view_lies_in_memory_does_not_change_a_bit(offset: int) -> None:
    task = ModuleTask(perceptron(), "cross_entropy", toy_data(), batch_size=1)
    room = torch.zeros(task.layout.size + 8)
    room[offset : offset + task.layout.size] = task.start()
    moved = task.gradient(room[offset : offset + task.layout.size], TURN)
    assert torch.equal(moved.grad, task.gradient(task.start(), TURN).grad)


def test_gradient_agrees_with_finite_differences() -> None:
    task = ModuleTask(perceptron(), "cross_entropy", toy_data(), batch_size=5, dtype="float64")
    start = task.start()
    grad = task.gradient(start, TURN).grad
    for i in range(0, task.layout.size, 9):
        step = torch.zeros_like(start)
        step[i] = 1e-6
        high, low = (task.gradient(start + s, TURN).loss for s in (step, -step))
        assert ((high - low) / 2e-6).item() == pytest.approx(grad[i].item(), abs=1e-8)


def test_neither_the_users_module_nor_the_view_is_touched() -> None:
    module = perceptron().eval()
    before = flatten(dict(module.named_parameters()))
    task = ModuleTask(module, "cross_entropy", toy_data(), batch_size=4)
    view = torch.randn(task.layout.size)
    kept = view.clone()
    task.gradient(view, TURN)
    task.evaluate(view, (), "train")
    assert torch.equal(flatten(dict(module.named_parameters())), before)
    assert torch.equal(view, kept)
    assert not module.training
    assert all(p.grad is None for p in module.parameters())


def test_frozen_parameters_stay_out_and_unused_ones_get_zero() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Linear(7, 7).requires_grad_(False)
            self.used = nn.Linear(7, 3)
            self.unused = nn.Parameter(torch.ones(2))

        def forward(self, x: Tensor) -> Tensor:
            return self.used(self.frozen(x))

    task = ModuleTask(Odd(), "cross_entropy", toy_data(), batch_size=4)
    assert set(task.layout.names) == {"unused", "used.weight", "used.bias"}
    parts = task.layout.unflatten(task.gradient(task.start(), TURN).grad)
    assert torch.equal(parts["unused"], torch.zeros(2))
    assert parts["used.weight"].abs().sum() > 0


def test_functional_loss_vmaps_to_the_same_gradients() -> None:
    task = ModuleTask(perceptron(), "cross_entropy", toy_data(), batch_size=4, dtype="float64")
    turns = [Turn(w, 2, w) for w in range(3)]
    chosen = task.indices_of([0, 1, 2], [2, 2, 2], [0, 1, 2])
    assert torch.equal(chosen, torch.stack([task.indices(t) for t in turns]))
    views = torch.stack([task.start() * (1 + w) for w in range(3)])
    train = task.data.train
    assert torch.equal(task.batches([0, 1, 2], [2, 2, 2], [0, 1, 2])[0], train.inputs[chosen])
    grads, losses = vmap(grad_and_value(task.functional_loss))(
        views, train.inputs[chosen], train.targets[chosen]
    )
    for i, turn in enumerate(turns):
        one = task.gradient(views[i], turn)
        torch.testing.assert_close(grads[i], one.grad, atol=1e-14, rtol=0)
        torch.testing.assert_close(losses[i], one.loss)


def test_augmentation_is_keyed_by_worker_and_step() -> None:
    streams = []

    def watch(inputs: Tensor, stream: int) -> Tensor:
        streams.append(stream)
        return inputs + 1

    task = ModuleTask(perceptron(), "cross_entropy", toy_data(), batch_size=2, augment=watch)
    assert task.augments
    for turn in (TURN, TURN._replace(row=9), TURN._replace(step=4), TURN._replace(worker=4)):
        inputs, _ = task.batch(turn)
        assert torch.equal(inputs, task.data.train.inputs[task.indices(turn)] + 1)
        assert torch.equal(task.batches(*([i] for i in turn))[0][0], inputs)
    assert streams[0] == streams[1]
    assert len(set(streams)) == 3


def dropout_task(**options: Any) -> ModuleTask:
    """All samples are the same, so gradients differ by their masks alone."""
    module = nn.Sequential(nn.Linear(7, 50), nn.Dropout(0.5), nn.Linear(50, 3))
    data = Data(Split(torch.ones(60, 7), torch.ones(60, dtype=torch.int64)))
    return ModuleTask(module, "cross_entropy", data, batch_size=4, **options)


def test_dropout_is_keyed_by_worker_and_step_and_leaves_the_generator_alone() -> None:
    task = dropout_task()
    assert task.stochastic
    view = task.start()
    state = torch.get_rng_state()
    first = task.gradient(view, TURN).grad
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(5)  # whoever else draws changes nothing
    assert torch.equal(task.gradient(view, TURN).grad, first)
    assert torch.equal(task.gradient(view, TURN._replace(row=99)).grad, first)
    masks = [task.gradient(view, t).grad for t in (TURN._replace(worker=0), TURN._replace(step=4))]
    assert not any(torch.equal(other, first) for other in masks)


def test_dropout_is_off_in_evaluation_and_detection_can_be_overruled() -> None:
    task = dropout_task()
    assert task.evaluate(task.start(), (), "train") == task.evaluate(task.start(), (), "train")
    assert not dropout_task(stochastic=False).stochastic
    assert not ModuleTask(
        nn.Sequential(nn.Linear(7, 3), nn.Dropout(0.0)), "nll", toy_data()
    ).stochastic


def test_evaluation_in_chunks_is_evaluation_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    module = perceptron().double()
    task = ModuleTask(module, "cross_entropy", toy_data(), batch_size=4)
    whole = task.evaluate(task.start(), (), "train")
    monkeypatch.setattr(measuring, "CHUNK", 7)
    assert task.evaluate(task.start(), (), "train") == pytest.approx(whole, rel=1e-14)
    train = task.data.train
    with torch.no_grad():
        outputs = module(train.inputs)
    assert whole["loss"] == pytest.approx(F.cross_entropy(outputs, train.targets).item())
    assert whole["accuracy"] == (outputs.argmax(1) == train.targets).double().mean().item()


@pytest.mark.parametrize(
    ("loss", "skipped"),
    [
        ("cross_entropy", -100),
        (nn.CrossEntropyLoss(), -100),
        (nn.CrossEntropyLoss(ignore_index=1), 1),
    ],
    ids=["name", "object", "of its own"],
)
def test_targets_that_the_loss_leaves_out_count_for_nothing(
    loss: str | nn.Module, skipped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many a chunk has: one has none that count."""
    module, train = perceptron().double(), toy_data().train
    targets = train.targets.clone()
    targets[2:14], targets[-1] = skipped, skipped
    task = ModuleTask(module, loss, Data(Split(train.inputs, targets)), batch_size=4)
    monkeypatch.setattr(measuring, "CHUNK", 7)
    found = task.evaluate(task.start(), (), "train")
    with torch.no_grad():
        outputs = module(task.data.train.inputs)
    expected = F.cross_entropy(outputs, targets, ignore_index=skipped).item()
    assert found["loss"] == pytest.approx(expected, rel=1e-14)
    right = (outputs.argmax(1) == targets)[targets != skipped]
    assert found["accuracy"] == right.double().mean().item()


def test_absent_splits_give_nothing_and_unknown_ones_an_error() -> None:
    task = ModuleTask(perceptron(), "cross_entropy", toy_data())
    assert task.evaluate(task.start(), (), "test") == {}
    assert set(task.evaluate(task.start(), (), "validation")) == {"loss", "accuracy"}
    with pytest.raises(ValueError, match="'train', 'validation' or 'test'"):
        task.evaluate(task.start(), (), "tset")


def test_regression_has_no_accuracy() -> None:
    data = Data(Split(torch.randn(20, 7), torch.randn(20, 3)))
    task = ModuleTask(nn.Linear(7, 3), "mse", data, batch_size=2)
    assert set(task.evaluate(task.start(), (), "train")) == {"loss"}


class Counting(nn.Linear):
    """Counts its forward passes in a buffer, and weighs by it."""

    passes: Tensor

    def __init__(self, in_place: bool) -> None:
        super().__init__(7, 3)
        self.in_place = in_place
        self.register_buffer("passes", torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.in_place:
            self.passes += 1
        else:
            self.passes = self.passes + inputs.mean().detach()
        return super().forward(inputs) / self.passes


class Caching(nn.Linear):
    """Keeps in a buffer what follows from the inputs' shape."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__(7, 3)
        self.register_buffer("mask", torch.ones(0))

    def forward(self, inputs: Tensor) -> Tensor:
        if self.mask.shape != inputs.shape:
            self.mask = torch.ones_like(inputs)
        return super().forward(inputs * self.mask)


@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_a_forward_pass_that_changes_a_buffer_is_refused(engine: Engine) -> None:
    """Else a gradient would depend on those before it, and a replay would give other bits."""
    cluster = tg.Gamma(workers=4)
    spectral = nn.utils.parametrizations.spectral_norm(nn.Linear(7, 3))
    modules = Counting(in_place=True), Counting(in_place=False), nn.Sequential(spectral)
    for module in modules:
        task = ModuleTask(module, "cross_entropy", toy_data(), batch_size=4)
        with pytest.raises(ValueError, match=r"changes the buffer '\S+', so a gradient depends on"):
            tg.simulate(task, tg.rules.sgd(0.1), cluster=cluster, updates=300, engine=engine)


def test_a_forward_pass_may_keep_what_follows_from_shapes() -> None:
    task = ModuleTask(Caching(), "cross_entropy", toy_data(), batch_size=4)
    task = pickle.loads(pickle.dumps(task))
    run = tg.simulate(task, tg.rules.sgd(0.1), cluster=tg.Gamma(workers=2), updates=5)
    assert tg.replay(run).difference is None


@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_runs_in_several_threads_may_share_a_task(engine: Engine) -> None:
    """Each writes its views into the task's one module."""
    task = ModuleTask(perceptron(), "cross_entropy", toy_data(), sampling="epoch", batch_size=4)

    def run(seed: int) -> tg.Run:
        return tg.simulate(
            task,
            tg.rules.sgd(0.1),
            cluster=tg.Gamma(workers=4),
            updates=150,
            seed=seed,
            evaluation=tg.Evaluation(10),
            engine=engine,
        )

    alone = [run(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        beside = list(threads.map(run, range(4)))
    for one, other in zip(alone, beside, strict=True):
        assert torch.equal(one.params, other.params)
        assert one.history.column("validation_loss") == other.history.column("validation_loss")


def test_a_task_can_be_sent_to_another_process() -> None:
    task = ModuleTask(perceptron(), "cross_entropy", toy_data(), sampling="epoch")
    copy = pickle.loads(pickle.dumps(task))
    assert torch.equal(
        copy.gradient(copy.start(), TURN).grad, task.gradient(task.start(), TURN).grad
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"sampling": "random"}, "sampling must be one of 'independent', 'epoch', 'partition'"),
        ({"sampling": "partition"}, "workers=N"),
        ({"sampling": "partition", "workers": 61}, "between 1 and 60"),
        ({"sampling": "by_label"}, "workers=N"),
        ({"sampling": "by_label", "workers": 31}, "between 1 and 30"),
        ({"dtype": "float8"}, "dtype must be 'float32' or 'float64'"),
        ({"loss": "hinge"}, "loss must be 'cross_entropy'"),
        ({"loss": (torch.zeros(3), torch.zeros(3))}, "a function .* got a tuple"),
        ({"augment": "blur"}, "augment must be 'none', 'pad_crop_flip'"),
    ],
)
def test_bad_arguments_say_what_to_use(options: dict[str, Any], message: str) -> None:
    arguments = {"module": perceptron(), "loss": "cross_entropy", "data": toy_data(), **options}
    with pytest.raises(ValueError, match=message):
        ModuleTask(**arguments)


def test_by_label_each_worker_sees_few_labels_and_needs_them() -> None:
    inputs, labels = torch.randn(60, 7), torch.arange(60) % 3
    task = ModuleTask(
        nn.Linear(7, 3), "cross_entropy", (inputs, labels), 4, sampling="by_label", workers=6
    )
    seen = [
        {int(i) for s in range(9) for i in labels[task.indices(Turn(w, s, 0))]} for w in range(6)
    ]
    assert max(map(len, seen)) == 2
    assert set.union(*seen) == {0, 1, 2}
    with pytest.raises(ValueError, match="one whole number a sample as its target"):
        ModuleTask(
            nn.Linear(7, 3), "mse", (inputs, torch.randn(60, 3)), sampling="by_label", workers=6
        )


def test_a_loss_per_sample_and_a_view_that_does_not_fit_are_refused() -> None:
    def each(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")

    task = ModuleTask(perceptron(), each, toy_data())
    with pytest.raises(ValueError, match="loss must return a scalar"):
        task.gradient(task.start(), TURN)
    with pytest.raises(ValueError, match=r"flat torch.float32 vector of 146 numbers"):
        task.gradient(task.start()[1:], TURN)
    with pytest.raises(ValueError, match="nothing to learn"):
        ModuleTask(perceptron().requires_grad_(False), "cross_entropy", toy_data())


def test_splits_must_match() -> None:
    with pytest.raises(ValueError, match="3 inputs and 2 targets"):
        Split(torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match="use None for an absent split"):
        Split(torch.zeros(0), torch.zeros(0))


def test_a_module_of_two_dtypes_must_say_which() -> None:
    mixed = nn.Sequential(nn.Linear(7, 3), nn.Linear(3, 3).double())
    with pytest.raises(ValueError, match=r"mixes .*float32.*float64.*choose one with dtype"):
        ModuleTask(mixed, "cross_entropy", toy_data())
    assert ModuleTask(mixed, "cross_entropy", toy_data(), dtype="float64").start().dtype == (
        torch.float64
    )


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_precision_changes_products_only_where_it_can(precision: Precision) -> None:
    full = mnist_cnn(batch_size=4, width=4, train_size=100, validation=50, augment="none")
    task = ModuleTask(
        full.module,
        "nll",
        full.data,
        4,
        precision=precision,
        channels_last=True,
    )
    exact, other = (t.gradient(t.start(), Turn(0, 0, 0)) for t in (full, task))
    assert other.grad.dtype == torch.float32
    off = (exact.grad - other.grad).norm() / exact.grad.norm()
    assert off < (0.05 if precision == "bf16" else 1e-5)
    assert (off > 1e-5) == (precision == "bf16")


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(ValueError, match="precision must be 'full', 'tf32' or 'bf16'"):
        ModuleTask(torch.nn.Linear(2, 2), "mse", None, precision="half")  # type: ignore[arg-type]


def test_tasks_of_one_layout_differ_by_their_models() -> None:
    one, same, other = (
        ModuleTask(
            nn.Sequential(nn.Linear(7, 5), between, nn.Linear(5, 3)), "cross_entropy", toy_data()
        )
        for between in (nn.ReLU(), nn.ReLU(), nn.Tanh())
    )
    assert one.differs(same) is None
    assert one.differs(other) == "model"


def test_batches_that_no_machine_holds_are_refused() -> None:
    with pytest.raises(ValueError, match=r"batch_size = 1,000,000,000,000 makes batches of at"):
        logistic_regression(batch_size=10**12)
