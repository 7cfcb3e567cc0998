"""Data as people have it: each form gives the gradients of plain tensors, and bad ones one line."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import tardigrad as tg
from tardigrad.tasks import Data, Split, Turn
from tardigrad.tasks.module import initialised

TURN = Turn(1, 3, 7)
DRAW = torch.Generator().manual_seed(0)
POINTS = torch.randn(40, 5, generator=DRAW)
CLASSES = torch.randint(3, (40,), generator=DRAW)


class Pairs(Dataset[Any]):
    """Samples made one at a time, arrays with plain numbers as targets."""

    def __len__(self) -> int:
        return len(POINTS)

    def __getitem__(self, i: int) -> Any:
        return POINTS[i].numpy(), int(CLASSES[i])


class TwoInputs(nn.Module):
    """A model of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.first(left) + self.second(right).tanh()


class OwnLoss(TwoInputs):
    """A model with a loss of its own, in a dict or in an object."""

    def __init__(self, as_object: bool = False) -> None:
        super().__init__()
        self.as_object = as_object

    def forward(self, left: Tensor, right: Tensor, labels: Tensor | None = None) -> Any:
        logits = super().forward(left, right)
        loss = None if labels is None else F.cross_entropy(logits, labels)
        found = {"logits": logits, "loss": loss}
        return SimpleNamespace(**found) if self.as_object else found


def linear() -> nn.Module:
    return initialised(lambda: nn.Linear(5, 3), 0)


FORMS: dict[str, Any] = {
    "tensors": (POINTS, CLASSES),
    "arrays": (POINTS.numpy(), CLASSES.numpy()),
    "read-only arrays": tuple(
        np.frombuffer(t.numpy().tobytes(), t.numpy().dtype).reshape(t.shape)
        for t in (POINTS, CLASSES)
    ),
    "arrays that end where they begin": (
        POINTS.numpy()[::-1].copy()[::-1],
        CLASSES.numpy()[::-1].copy()[::-1],
    ),
    "arrays of another byte order": (POINTS.numpy().astype(">f4"), CLASSES.numpy().astype(">i8")),
    "arrays of long doubles": (POINTS.numpy().astype(np.longdouble), CLASSES.numpy()),
    "classes in two bytes": (POINTS, CLASSES.numpy().astype(np.int16)),
    "classes in four bytes": (POINTS, CLASSES.int()),
    "lists": (POINTS.tolist(), CLASSES.tolist()),
    "a Split": Split(POINTS, CLASSES),
    "a TensorDataset": TensorDataset(POINTS, CLASSES),
    "a Dataset": Pairs(),
    "a list of samples": [(POINTS[i], CLASSES[i]) for i in range(len(POINTS))],
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_gradients_of_plain_tensors(form: str) -> None:
    known = tg.ModuleTask(linear(), "cross_entropy", Data(Split(POINTS, CLASSES)), 8)
    task = tg.ModuleTask(linear(), "cross_entropy", FORMS[form], 8)
    for mine, plain in zip(
        task.gradient(task.start(), TURN)[:2], known.gradient(known.start(), TURN)[:2], strict=True
    ):
        assert torch.equal(mine, plain)
    assert task.evaluate(task.start(), (), "train") == known.evaluate(known.start(), (), "train")


INPUTS: dict[str, tuple[Any, Any]] = {
    "a tuple": (Split((POINTS, POINTS + 1), CLASSES), TwoInputs),
    "a dict": (Split({"right": POINTS + 1, "left": POINTS}, CLASSES), TwoInputs),
    "three tensors": ((POINTS, POINTS + 1, CLASSES), TwoInputs),
    "a Dataset of three": (TensorDataset(POINTS, POINTS + 1, CLASSES), TwoInputs),
}


@pytest.mark.parametrize("form", INPUTS)
def test_several_inputs_are_the_forward_passs_arguments(form: str) -> None:
    data, make = INPUTS[form]
    module = initialised(make, 0)
    task = tg.ModuleTask(module, "cross_entropy", data, 8)
    chosen = task.indices(TURN)
    F.cross_entropy(module(POINTS[chosen], POINTS[chosen] + 1), CLASSES[chosen]).backward()
    plain = torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])
    assert torch.equal(task.gradient(task.start(), TURN).grad, plain)


def own_loss_samples() -> list[dict[str, Tensor]]:
    return [{"left": x, "right": x + 1, "labels": y} for x, y in zip(POINTS, CLASSES, strict=True)]


@pytest.mark.parametrize("as_object", [False, True], ids=["dict", "object"])
@pytest.mark.parametrize("labels_are", ["inputs", "targets"])
def test_a_models_own_loss_is_that_of_a_function(as_object: bool, labels_are: str) -> None:
    data: Any = own_loss_samples()
    if labels_are == "targets":
        data = Split({"left": POINTS, "right": POINTS + 1}, CLASSES)
    own = tg.ModuleTask(initialised(lambda: OwnLoss(as_object), 0), "model", data, 8)
    known = tg.ModuleTask(
        initialised(TwoInputs, 0), "cross_entropy", (POINTS, POINTS + 1, CLASSES), 8
    )
    mine, plain = (task.gradient(task.start(), TURN) for task in (own, known))
    assert torch.equal(mine.grad, plain.grad)
    assert torch.equal(mine.loss, plain.loss)
    measured = own.evaluate(own.start(), (), "train")
    expected = known.evaluate(known.start(), (), "train")
    assert measured["loss"] == pytest.approx(expected["loss"])
    if not as_object:
        assert measured["accuracy"] == expected["accuracy"]


def several(precision: Any = "full") -> tg.ModuleTask:
    return tg.ModuleTask(
        initialised(OwnLoss, 0), "model", own_loss_samples(), 8, precision=precision
    )


def in_bf16() -> tg.ModuleTask:
    return tg.ModuleTask(linear(), "cross_entropy", (POINTS, CLASSES), 8, precision="bf16")


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()], ids=["async", "sync"])
@pytest.mark.parametrize(
    ("make", "why"),
    [(several, "a sample is more than one tensor"), (in_bf16, "products are rounded to bfloat16")],
)
def test_the_fast_engine_says_why_and_does_what_the_exact_one_does(
    make: Any, why: str, policy: Any
) -> None:
    schedule, rule = tg.schedule(policy, tg.Gamma(workers=3), 30), tg.rules.sgd(0.1, 0.9)
    said = list[str]()
    fast = tg.execute(schedule, make(), rule, engine="fast", say=said.append)
    exact = tg.execute(schedule, make(), rule, engine="exact")
    assert any(why in line for line in said), said
    assert (fast.params - exact.params).abs().max() <= 1e-6
    assert fast.history.loss == pytest.approx(exact.history.loss, rel=1e-5)


def test_bf16_rounds_products_and_keeps_parameters() -> None:
    full = tg.ModuleTask(linear(), "cross_entropy", (POINTS, CLASSES), 8)
    rough, fine = (t.gradient(t.start(), TURN).grad for t in (in_bf16(), full))
    assert rough.dtype == torch.float32
    assert 1e-5 < (rough - fine).abs().max() / fine.abs().max() < 0.05


def test_metrics_are_of_the_whole_split_and_kept_in_the_history() -> None:
    def worst(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none").max()

    metrics: Any = {"worst": worst, "count": lambda outputs, targets: len(targets)}
    data = Data.of((POINTS, CLASSES), validation=(POINTS[:7], CLASSES[:7]))
    task = tg.ModuleTask(linear(), "cross_entropy", data, 8, metrics=metrics)
    run = tg.simulate(task, tg.rules.sgd(0.1), cluster=tg.Gamma(workers=2), updates=6, evaluation=3)
    last = run.history.records[-1]
    assert last["validation_count"] == 7
    module = nn.Linear(5, 3)
    module.load_state_dict(task.layout.unflatten(run.params))
    expected = worst(module(POINTS[:7]), CLASSES[:7]).item()
    assert last["validation_worst"] == pytest.approx(expected, rel=1e-6)


def test_a_metric_of_a_models_own_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets what is one row a sample, over several chunks, and the labels."""
    seen = []

    def look(outputs: Any, targets: Tensor) -> float:
        seen.append((sorted(outputs), len(outputs["logits"]), len(targets)))
        return 0.0

    task = tg.ModuleTask(
        initialised(OwnLoss, 0), "model", own_loss_samples(), 8, metrics={"look": look}
    )
    task.evaluate(task.start(), (), "train")
    assert seen == [(["logits"], 40, 40)]


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(own_loss_samples())


def uneven(i: int) -> Any:
    return [(torch.ones(3 if k != i else 4), 0) for k in range(5)]


def task_of(
    data: Any, module: nn.Module | None = None, loss: Any = "cross_entropy", **more: Any
) -> Any:
    return tg.ModuleTask(module or linear(), loss, data, 4, **more)


MODEL = OwnLoss()
BAD: dict[str, tuple[Any, str]] = {
    "uneven": (
        lambda: task_of(uneven(3)),
        r"list\[3\] has the shape \(4,\), and list\[0\] \(3,\): batches need one shape, so pad",
    ),
    "types": (lambda: task_of([(1, 0), (0.5, 0)]), r"list\[1\] is torch.float32, and list\[0\]"),
    "keys": (
        lambda: task_of([{"left": POINTS[0]}, {"right": POINTS[0]}]),
        r"list\[1\] has the keys \['right'\], and that of list\[0\] the keys \['left'\]",
    ),
    "length": (lambda: task_of(Stream()), r"Stream has no length.* list\(your_dataset\)"),
    "a loader": (lambda: task_of(DataLoader(Pairs())), "DataLoader makes batches.* its .dataset"),
    "empty": (lambda: task_of([]), "list has no samples"),
    "text": (lambda: task_of([{"text": "hello"}]), r"\['text'\] must be numbers.* a tokenizer"),
    "targets": (lambda: task_of({"input": POINTS}), "samples without targets.* loss='model'"),
    "targets of validation": (
        lambda: task_of(Data.of((POINTS, CLASSES), validation=(POINTS,))),
        "samples without targets",
    ),
    "counts": (lambda: task_of((POINTS, CLASSES[:9])), "got 40 inputs and 9 targets"),
    "two sets": (lambda: task_of((Pairs(), Pairs())), r"several Datasets are Data\("),
    "names": (
        lambda: task_of(Split({"left": POINTS, "rigth": POINTS}, CLASSES), TwoInputs()),
        "TwoInputs.forward takes no 'rigth'; did you mean 'right'.; it takes left, right",
    ),
    "too few": (
        lambda: task_of(Split({"left": POINTS}, CLASSES), TwoInputs()),
        r"TwoInputs.forward cannot be called with the inputs \(left\): missing .*'right'",
    ),
    "no loss": (
        lambda: task_of({"left": POINTS, "right": POINTS}, MODEL, "model"),
        "loss='model' takes the loss that the model returns, but it returns a dict without one",
    ),
    "no labels": (
        lambda: task_of(Split({"left": POINTS, "right": POINTS}, CLASSES), TwoInputs(), "model"),
        "TwoInputs.forward takes no 'labels'",
    ),
    "a tensor": (
        lambda: task_of({"left": POINTS, "right": POINTS}, TwoInputs(), "model"),
        "it returns a Tensor without one",
    ),
    "not a tensor": (
        lambda: task_of(INPUTS["a dict"][0], MODEL).gradient(torch.zeros(36), TURN),
        "loss 'cross_entropy' compares a tensor .* returns a dict: use loss='model'",
    ),
    "a metric of nothing": (
        lambda: measured(lambda outputs, targets: None),
        "metric 'mine' returned a NoneType: it must return a number",
    ),
    "a metric of many": (lambda: measured(lambda outputs, targets: outputs), "returned a Tensor"),
    "a metric that fails": (
        lambda: measured(lambda outputs: 1.0),
        r"metric 'mine' failed \(TypeError: ",
    ),
    "a metric's name": (
        lambda: task_of((POINTS, CLASSES), metrics={"loss": len}),
        "cannot be called 'loss'",
    ),
    "augment": (
        lambda: task_of(INPUTS["a dict"][0], TwoInputs(), augment="pad_crop_flip"),
        "augment changes one tensor of inputs",
    ),
}


def measured(metric: Any) -> Any:
    task = task_of((POINTS, CLASSES), metrics={"mine": metric})
    return task.evaluate(task.start(), (), "train")


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_is_refused_in_one_line(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(ValueError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_a_long_reading_tells_how_far_it_has_come(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Data.of(Pairs())
    assert capsys.readouterr().err == ""
    clock = iter(range(1000))
    monkeypatch.setattr("tardigrad.tasks.reading.time.monotonic", lambda: 0.1 * next(clock))
    Data.of(Pairs())
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "reading Pairs: 20 of 40 samples",
        "reading Pairs: 40 of 40 samples",
        "read Pairs in 4 s",
    ]
