"""Gradients that are handed on as two factors: which are, and that runs are the same by them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import tardigrad as tg
from tardigrad.bench.loops import perceptron
from tardigrad.engine.fast import factored
from tardigrad.engine.fast.cpu_stream import CpuStream
from tardigrad.engine.fast.factored import with_factors
from tardigrad.engine.fast.gradients import batch_gradients, padded
from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.module import initialised
from tardigrad.work import OneGradient
from tests.engine.fast_cases import RULE_CASES, Stop, run, stop_after


class TwoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(160, 150), nn.Linear(150, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.first(x)))


def task(batch_size: int) -> ModuleTask:
    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(200, 160, generator=draw, dtype=torch.float64)
    labels = torch.randint(0, 3, (200,), generator=draw)
    data = Data(Split(inputs, labels))
    return ModuleTask(initialised(TwoLayers, 0), "cross_entropy", data, batch_size, dtype="float64")


def factored_pieces(of: ModuleTask, clip_norm: float | None = None) -> list[bool]:
    views = torch.zeros(2, padded(of.layout.size), dtype=of.dtype)
    inputs, targets = of.batches([0, 0], [0, 1], [0, 1])
    traced = make_fx(batch_gradients(of, OneGradient(clip_norm)))(views, inputs, targets)
    (output,) = [node for node in traced.graph.nodes if node.op == "output"]
    return [isinstance(piece, tuple) for piece in with_factors(output.args[0][0])]


@pytest.mark.parametrize(
    ("batch_size", "wanted"), [(1, True), (8, True), (159, True), (160, False)]
)
def test_large_layers_are_while_factors_take_less_room(batch_size: int, wanted: bool) -> None:
    assert factored_pieces(perceptron(batch_size, "cpu")) == [wanted, False, False, False]


def test_a_clipped_gradient_is_not() -> None:
    assert factored_pieces(task(2), clip_norm=1.0) == [False]


@pytest.mark.parametrize(
    ("views", "wanted"),
    [
        (lambda product: product.flatten(1), True),
        (lambda product: product.mT.unsqueeze(0)[0].mT.flatten(1), True),
        (lambda product: product[:, :128].flatten(1), False),
        (lambda product: product.view(1, 300, 128).flatten(1), True),
        (lambda product: (2 * product).flatten(1), False),
    ],
)
def test_views_of_a_product_must_leave_it_as_it_is(
    views: Callable[[Tensor], Tensor], wanted: bool
) -> None:
    given = torch.zeros(1, 150, 3), torch.zeros(1, 3, 256)
    traced = make_fx(lambda left, right: views(left @ right))(*given)
    (output,) = [node for node in traced.graph.nodes if node.op == "output"]
    (piece,) = with_factors((output.args[0],))
    assert isinstance(piece, tuple) == wanted


@pytest.mark.parametrize("batch_size", [1, 4, 7, 40])
def test_a_run_is_the_exact_one(batch_size: int) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=3), updates=40)
    on = task(batch_size)
    fast, exact = (
        run(schedule, RULE_CASES["dana_ga"], engine, task=on) for engine in ("fast", "exact")
    )
    assert (fast.params - exact.params).abs().max() <= 1e-12


def test_it_is_resumed_inside_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the factors are all that is left of gradients that were computed."""
    saved: set[str] = set()
    tensors = CpuStream.tensors

    def watched(self: CpuStream) -> dict[str, Tensor]:
        saved.update(tensors(self))
        return tensors(self)

    monkeypatch.setattr(CpuStream, "tensors", watched)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=60)
    on, rule = task(3), RULE_CASES["gap_aware"]
    whole = run(schedule, rule, "fast", task=on)
    saving = tg.Checkpoints(tmp_path, 5, True)
    for updates in (9, 22, 41):
        watch = stop_after(updates)
        with pytest.raises(Stop):
            run(schedule, rule, "fast", task=on, checkpoints=saving, watch=watch)
    resumed = run(schedule, rule, "fast", task=on, checkpoints=saving)
    assert {"grads.0.left", "grads.0.right"} <= saved
    assert torch.equal(resumed.params, whole.params)


def test_the_bound_on_terms_is_what_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factored, "TERMS", 2)
    assert factored_pieces(task(2)) == [True, False, False, False]
    assert factored_pieces(task(3)) == [False, False, False, False]
