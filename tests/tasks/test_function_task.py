"""Tasks given by a gradient function, and the quadratic made of one."""

import pickle
from typing import Any

import pytest
import torch

from tardigrad.core.layout import Layout
from tardigrad.tasks import FunctionTask, Turn, quadratic

TURN = Turn(worker=2, step=5, row=11)


def test_the_function_sees_view_worker_and_step() -> None:
    seen = []

    def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        seen.append((worker, step))
        return 2 * view

    task = FunctionTask(torch.ones(3), grad)
    out = task.gradient(task.start(), TURN)
    assert seen == [(2, 5)]
    assert torch.equal(out.grad, 2 * torch.ones(3))
    assert out.loss.item() == 0.0
    assert (task.layout, task.epoch_size, task.batch_size) == (Layout.flat(3), 0, 1)


def test_a_returned_loss_is_kept() -> None:
    task = FunctionTask(torch.ones(3), lambda view, worker, step: (view.sum(), view))
    assert task.gradient(task.start(), TURN).loss.item() == 3.0


def test_start_is_a_copy() -> None:
    task = FunctionTask(torch.ones(3), lambda view, worker, step: view)
    task.start().zero_()
    assert torch.equal(task.start(), torch.ones(3))


@pytest.mark.parametrize(
    "bad", [torch.ones(4), torch.ones(3, dtype=torch.float64), torch.ones(3, 1), [1.0, 1.0, 1.0]]
)
def test_a_wrong_gradient_is_refused(bad: torch.Tensor) -> None:
    task = FunctionTask(torch.ones(3), lambda view, worker, step: bad)
    with pytest.raises(ValueError, match=r"worker=2, step=5.*like its view, torch.float32 \(3,\)"):
        task.gradient(task.start(), TURN)


def test_a_loss_that_is_no_scalar_is_refused() -> None:
    task = FunctionTask(torch.ones(3), lambda view, worker, step: (view, view))
    with pytest.raises(ValueError, match="scalar loss"):
        task.gradient(task.start(), TURN)


def test_a_start_that_is_not_flat_or_does_not_fit_its_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="reshape"):
        FunctionTask(torch.ones(2, 2), lambda view, worker, step: view)
    with pytest.raises(ValueError, match="layout has 5"):
        FunctionTask(torch.ones(4), lambda view, worker, step: view, layout=Layout.flat(5))


def test_the_quadratic_is_the_bowl_it_says() -> None:
    task = quadratic(dimension=5, condition=100.0, dtype="float64")
    view = task.start().requires_grad_()
    curvature = torch.logspace(0, -2, 5, dtype=torch.float64)
    loss = 0.5 * (curvature * view**2).sum()
    (expected,) = torch.autograd.grad(loss, view)
    out = task.gradient(view.detach(), TURN)
    torch.testing.assert_close(out.grad, expected)
    torch.testing.assert_close(out.loss, loss.detach())
    assert task.evaluate(torch.zeros_like(view), (), "test") == {"loss": 0.0, "distance": 0.0}


def test_noise_is_keyed_and_of_the_given_size() -> None:
    task = quadratic(dimension=20_000, noise=0.5, dtype="float64")
    zero = torch.zeros(20_000, dtype=torch.float64)
    first, again = (task.gradient(zero, TURN).grad for _ in range(2))
    other = task.gradient(zero, TURN._replace(worker=3)).grad
    assert torch.equal(first, again)
    assert first.std().item() == pytest.approx(0.5, rel=0.03)
    assert abs(torch.corrcoef(torch.stack([first, other]))[0, 1].item()) < 0.03


def test_the_quadratic_can_be_sent_to_another_process() -> None:
    task = quadratic(noise=0.1)
    copy = pickle.loads(pickle.dumps(task))
    assert torch.equal(
        copy.gradient(copy.start(), TURN).grad, task.gradient(task.start(), TURN).grad
    )


@pytest.mark.parametrize(
    ("field", "value"), [("dimension", 0), ("condition", 0.5), ("noise", -1.0)]
)
def test_bad_arguments_are_named(field: str, value: float) -> None:
    wrong: dict[str, Any] = {field: value}
    with pytest.raises(ValueError, match=f"{field} must be at least"):
        quadratic(**wrong)
