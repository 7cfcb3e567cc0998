"""What is done to inputs alone is cut off a traced function, and the parts make the whole."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from tardigrad.bench.loops import perceptron
from tardigrad.engine.fast.gradients import batch_gradients, padded
from tardigrad.engine.fast.input_prologue import Parts, split_off_prologue
from tardigrad.work import OneGradient

DRAW = torch.Generator().manual_seed(0)
WEIGHT = torch.randn(3, 12, generator=DRAW)
BYTES = torch.randint(0, 256, (5, 3, 4), generator=DRAW, dtype=torch.uint8)
MEAN = torch.randn(4, generator=DRAW)
Model = Callable[[Tensor, Tensor], Tensor]


def cut(model: Model, x: Tensor) -> Parts:
    return split_off_prologue(make_fx(model)(WEIGHT, x), argument=1)


def operations(part: torch.fx.GraphModule) -> list[object]:
    return [node.target for node in part.graph.nodes if node.op == "call_function"]


def normalised(weight: Tensor, x: Tensor) -> Tensor:
    return ((x.float() / 255 - MEAN).flatten(1) @ weight.T).relu()


def used_twice(weight: Tensor, x: Tensor) -> Tensor:
    pixels = x.float() / 255
    return pixels.flatten(1) @ weight.T + (pixels.square().sum() * pixels).flatten(1) @ weight.T


@pytest.mark.parametrize("model", [normalised, used_twice])
def test_the_parts_make_the_whole(model: Model) -> None:
    prologue, rest = cut(model, BYTES)
    assert prologue is not None
    assert torch.equal(rest(*prologue(BYTES), WEIGHT), model(WEIGHT, BYTES))


@pytest.mark.parametrize("model", [normalised, used_twice])
def test_bytes_are_made_floats_outside(model: Model) -> None:
    prologue, rest = cut(model, BYTES)
    assert prologue is not None
    conversion = torch.ops.aten._to_copy.default
    assert conversion in operations(prologue)
    assert conversion not in operations(rest)


def test_the_perceptron_has_nothing_left_to_do_to_its_pixels() -> None:
    task = perceptron(1, "cpu")
    inputs, targets = task.batches([0, 0], [0, 1], [0, 1])
    views = torch.zeros(2, padded(task.layout.size))
    traced = make_fx(batch_gradients(task, OneGradient()))(views, inputs, targets)
    prologue, rest = split_off_prologue(traced, argument=1)
    assert prologue is not None
    values = prologue(inputs)
    assert [value.dtype for value in values] == [torch.float32]
    # Of the inputs only products and views are left: no pixel is computed twice.
    (given,) = [n for n in rest.graph.nodes if n.op == "placeholder"][:1]
    readers = {node.target for node in given.users}
    assert readers <= {torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default}
    for found, expected in zip(
        rest(*values, views, targets)[0], traced(views, inputs, targets)[0], strict=True
    ):
        assert torch.equal(found, expected)


def test_views_alone_are_not_cut_off() -> None:
    assert cut(lambda weight, x: x.flatten(1) @ weight.T, BYTES.float()).prologue is None


def test_what_is_larger_than_the_inputs_is_not_written_down() -> None:
    tokens = torch.randint(0, 12, (5,), generator=DRAW)

    def one_hot(weight: Tensor, x: Tensor) -> Tensor:
        return (x[:, None] == torch.arange(12)).float() @ weight.T

    assert cut(one_hot, tokens).prologue is None


def test_a_function_that_changes_tensors_in_place_stays_whole() -> None:
    def model(weight: Tensor, x: Tensor) -> Tensor:
        pixels = x.float()
        scaled = pixels.flatten(1) @ weight.T
        pixels.add_(scaled.mean())
        return pixels.flatten(1) @ weight.T

    assert cut(model, BYTES).prologue is None


def test_random_numbers_stay_where_they_are_drawn() -> None:
    parts = cut(lambda weight, x: F.dropout(x.float(), 0.5).flatten(1) @ weight.T, BYTES)
    assert parts.prologue is None
