"""The ready-made tasks: sizes, keyed starts, and that they learn what they should."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tardigrad.tasks import TASKS, Data, ModuleTask, Split, Turn, logistic_regression, mnist_mlp
from tardigrad.tasks import data as data_sets
from tardigrad.tasks.cifar import (
    WideResNet,
    cifar10_resnet20,
    cifar10_wideresnet16_4,
    resnet20,
)
from tardigrad.tasks.images import Normalise
from tardigrad.tasks.mnist import cnn, mlp
from tardigrad.tasks.module import initialised
from tardigrad.tasks.transformer import Transformer, char_transformer


def small_gpt() -> nn.Module:
    return Transformer(alphabet=65, layers=2, heads=4, width=64, context=64, dropout=0.0)


@pytest.mark.parametrize(
    ("make", "parameters"),
    [
        (lambda: mlp(200), 159_010),
        (lambda: cnn(32), 65_834),
        (resnet20, 269_722),
        (lambda: WideResNet(16, 4), 2_748_890),
        (small_gpt, 108_352),
    ],
)
def test_parameter_counts(make: Callable[[], nn.Module], parameters: int) -> None:
    assert sum(p.numel() for p in make().parameters()) == parameters


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: cnn(4), (1, 28, 28)),
        (resnet20, (3, 32, 32)),
        (lambda: WideResNet(10, 1), (3, 32, 32)),
    ],
)
def test_image_models_give_ten_scores_for_bytes(
    make: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, *shape), generator=generator, dtype=torch.uint8)
    data = Data(Split(images, torch.tensor([1, 2])))
    for dtype in ("float32", "float64"):
        task = ModuleTask(make(), "cross_entropy", data, batch_size=2, dtype=dtype)
        out = task.gradient(task.start(), Turn(0, 0, 0))
        assert out.grad.dtype == task.dtype
        assert out.grad.isfinite().all()


def test_normalised_pixels_have_mean_0_and_deviation_1() -> None:
    arrays = data_sets.load("mnist")
    assert isinstance(arrays, data_sets.Images)
    pixels = Normalise("mnist").double()(torch.from_numpy(arrays.train_images[:20_000]))
    assert pixels.mean().item() == pytest.approx(0, abs=0.01)
    assert pixels.std().item() == pytest.approx(1, abs=0.01)


def test_initial_weights_are_keyed_by_the_seed_alone() -> None:
    state = torch.get_rng_state()
    first = logistic_regression(seed=3).start()
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    assert torch.equal(logistic_regression(seed=3).start(), first)
    assert not torch.equal(logistic_regression(seed=4).start(), first)


def train(task: ModuleTask, steps: int, lr: float) -> torch.Tensor:
    params = task.start()
    for step in range(steps):
        params = params - lr * task.gradient(params, Turn(0, step, step)).grad
    return params


def test_logistic_regression_approaches_what_its_truth_allows() -> None:
    """With a margin of 2 per class the score difference z has deviation 2√2, and the best
    accuracy is E[σ(|z|)], about 0.86."""
    task = logistic_regression(train_size=4000, validation=2000, sampling="epoch")
    metrics = task.evaluate(train(task, 2000, 0.1), (), "test")
    z = np.abs(np.random.default_rng(0).normal(size=100_000)) * 2 * np.sqrt(2)
    assert metrics["accuracy"] == pytest.approx(np.mean(1 / (1 + np.exp(-z))), abs=0.04)


def test_the_perceptron_learns_mnist() -> None:
    task = mnist_mlp(sampling="epoch")
    assert (len(task.data.train), task.epoch_size) == (55_000, 55_000)
    params = train(task, 1000, 0.05)
    assert task.evaluate(params, (), "test")["accuracy"] > 0.88
    assert task.evaluate(params, (), "validation")["accuracy"] > 0.88


def test_the_transformer_learns_and_sees_no_future(monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.frombuffer(b"the tardigrade waits. " * 400, dtype=np.uint8)
    monkeypatch.setattr(data_sets, "load", lambda name, folder: data_sets.Text(text))
    task = char_transformer(layers=1, heads=2, width=16, context=16, batch_size=8, dropout=0.1)
    assert task.stochastic
    before = task.evaluate(task.start(), (), "test")
    after = task.evaluate(train(task, 150, 0.5), (), "test")
    assert before["loss"] == pytest.approx(np.log(12), abs=0.1)
    assert after["loss"] < 1.0
    model = initialised(small_gpt, 0).eval()
    tokens = torch.arange(20).view(1, 20)
    changed = tokens.clone()
    changed[0, 10:] = 7
    torch.testing.assert_close(model(tokens)[:, :10], model(changed)[:, :10])


def test_windows_cover_the_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.arange(100, dtype=np.uint8)
    monkeypatch.setattr(data_sets, "load", lambda name, folder: data_sets.Text(text))
    data = char_transformer(heads=1, width=4, context=4, validation=10).data
    assert data.train.inputs.flatten().tolist() == list(range(84))
    assert data.train.targets.flatten().tolist() == list(range(1, 85))
    assert data.validation is not None
    assert data.validation.inputs.flatten().tolist() == list(range(85, 93))
    assert data.test is not None
    assert data.test.inputs.flatten().tolist() == list(range(95, 99))


@pytest.mark.parametrize("name", TASKS)
def test_every_task_describes_itself_in_a_line(name: str) -> None:
    make = TASKS[name]
    assert make.__name__ == name
    line = (make.__doc__ or "").splitlines()[0]
    assert line.endswith(".")
    assert 30 < len(line) < 100


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mnist_mlp", {"validation": 60_000}, "validation = 60000 must leave some"),
        ("mnist_mlp", {"train_size": 56_000}, "choose 1 to 55000"),
        ("mnist_mlp", {"hidden": 0}, "hidden must be at least 1"),
        ("mnist_mlp", {"data": "cifar10"}, "data must be one of 'mnist', 'fashion_mnist'"),
        ("mnist_cnn", {"augment": "blur"}, "augment must be"),
        ("char_transformer", {"width": 30}, "multiple of heads = 4"),
        ("char_transformer", {"dropout": 1.0}, "dropout must be"),
        ("logistic_regression", {"classes": 1}, "classes must be at least 2"),
    ],
)
def test_bad_arguments_are_named(name: str, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TASKS[name](**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"validation": 3}, "validation = 3 characters is less than one context of 4"),
        ({"train_size": 4}, "train_size = 4 must lie above context = 4"),
        ({"train_size": 99}, "not above the 90 characters"),
    ],
)
def test_a_text_that_is_too_short_is_refused(
    options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = np.arange(100, dtype=np.uint8)
    monkeypatch.setattr(data_sets, "load", lambda name, folder: data_sets.Text(text))
    with pytest.raises(ValueError, match=message):
        char_transformer(heads=1, width=4, context=4, **options)


@pytest.mark.parametrize(
    ("make", "parameters"),
    [(cifar10_resnet20, 269_722), (cifar10_wideresnet16_4, 2_748_890)],
)
def test_cifars_tasks_have_the_published_sizes(
    make: Callable[..., ModuleTask], parameters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(12, dtype=np.uint8) % 10
    made = data_sets.Images(images, labels, images[:2], labels[:2])
    monkeypatch.setattr(data_sets, "load", lambda name, folder: made)
    task = make(batch_size=2, validation=4)
    assert task.layout.size == parameters
    assert len(task.data.train) == 8
    turn = Turn(0, 0, 0)
    moved, as_they_are = (
        t.batch(turn)[0] for t in (task, make(batch_size=2, validation=4, augment="none"))
    )
    assert moved.shape == as_they_are.shape
    assert not torch.equal(moved, as_they_are)
    out = task.gradient(task.start(), turn)
    assert out.grad.isfinite().all()
    assert out.loss.item() == pytest.approx(np.log(10), abs=2.0)


def test_a_wide_resnet_of_no_published_depth_is_refused() -> None:
    with pytest.raises(ValueError, match=r"depth must be 6n \+ 4 .* got 12"):
        WideResNet(depth=12, widen=1)
