"""BatchNorm's statistics travel with the gradient and are folded in order of application."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import grad_and_value, vmap

from tardigrad.tasks import Data, ModuleTask, Split, Turn


def network(momentum: float | None = 0.1) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(2, 4, 3),
            nn.BatchNorm2d(4, momentum=momentum),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * 16, 5),
            nn.BatchNorm1d(5, momentum=0.3),
        ).double()


def task_of(module: nn.Module) -> ModuleTask:
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(40, 2, 6, 6, generator=generator, dtype=torch.float64)
    targets = torch.randint(5, (40,), generator=generator)
    return ModuleTask(module, "cross_entropy", Data(Split(inputs, targets)), batch_size=6)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_folding_keeps_what_sequential_training_would_have_kept(momentum: float | None) -> None:
    module = network(momentum)
    task = task_of(module)
    buffers, params = task.start_buffers(), task.start()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for step in range(5):
        turn = Turn(0, step, step)
        out = task.gradient(params, turn)
        buffers = task.fold(buffers, out.buffers)
        params = params - 0.1 * out.grad
        inputs, targets = task.batch(turn)
        optimizer.zero_grad()
        F.cross_entropy(module(inputs), targets).backward()
        optimizer.step()
    kept = [module[i].state_dict() for i in (1, 5)]
    names = ("running_mean", "running_var", "num_batches_tracked")
    expected = [state[name] for state in kept for name in names]
    assert len(buffers) == len(expected) == 6
    for ours, theirs in zip(buffers, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    module.eval()
    with torch.no_grad():
        loss = F.cross_entropy(module(task.data.train.inputs), task.data.train.targets)
    measured = task.evaluate(params, buffers, "train")["loss"]
    assert measured == pytest.approx(loss.item(), abs=1e-10)


def test_a_gradient_or_an_evaluation_changes_no_other_gradient() -> None:
    task = task_of(network())
    start, turn = task.start(), Turn(0, 0, 0)
    first = task.gradient(start, turn)
    task.gradient(start, Turn(1, 0, 1))
    task.evaluate(start, task.start_buffers(), "train")
    again = task.gradient(start, turn)
    for a, b in zip((first.grad, *first.buffers), (again.grad, *again.buffers), strict=True):
        assert torch.equal(a, b)


def test_a_diverged_worker_does_not_poison_the_next_gradient() -> None:
    task = task_of(network())
    clean = task.gradient(task.start(), Turn(0, 0, 0))
    lost = task.gradient(torch.full_like(task.start(), torch.nan), Turn(1, 0, 1))
    assert lost.buffers[0].isnan().all()
    after = task.gradient(task.start(), Turn(0, 0, 0))
    for a, b in zip((clean.grad, *clean.buffers), (after.grad, *after.buffers), strict=True):
        assert torch.equal(a, b)


def test_buffers_of_another_model_are_refused() -> None:
    task = task_of(network())
    with pytest.raises(ValueError, match=r"has 6 running buffers, got 1: pass task.start_buffers"):
        task.evaluate(task.start(), task.start_buffers()[:1], "train")


def test_one_momentum_of_all_layers_or_none() -> None:
    module = network()
    second = module[5]
    assert isinstance(second, nn.BatchNorm1d)
    assert task_of(module).statistics_momentum is None
    second.momentum = 0.1
    assert task_of(module).statistics_momentum == 0.1


def test_statistics_are_the_batchs_own() -> None:
    module = network()
    task = task_of(module)
    turn = Turn(0, 0, 0)
    mean, variance = task.gradient(task.start(), turn).buffers[:2]
    seen = module[0](task.batch(turn)[0]).detach().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean, seen.mean(1))
    torch.testing.assert_close(variance, seen.var(1, unbiased=True))


def test_folding_does_not_change_its_arguments() -> None:
    task = task_of(network())
    buffers = task.start_buffers()
    batch = task.gradient(task.start(), Turn(0, 0, 0)).buffers
    task.fold(buffers, batch)
    for ours, start in zip(buffers, task.start_buffers(), strict=True):
        assert torch.equal(ours, start)


def test_statistics_come_through_vmap() -> None:
    task = task_of(network())
    assert task.has_statistics
    turns = [Turn(w, 0, w) for w in range(3)]
    inputs, targets = (torch.stack(part) for part in zip(*map(task.batch, turns), strict=True))
    zeros = tuple(zero.expand(3, *zero.shape).clone() for zero in task.statistics_zeros())
    loss = grad_and_value(task.functional_loss_and_statistics, has_aux=True)
    grads, (_, statistics) = vmap(loss, in_dims=(None, 0, 0, 0))(
        task.start(), inputs, targets, zeros
    )
    for i, turn in enumerate(turns):
        one = task.gradient(task.start(), turn)
        torch.testing.assert_close(grads[i], one.grad)
        for many, single in zip(statistics, one.buffers, strict=True):
            torch.testing.assert_close(many[i], single)


def test_instance_norm_with_running_statistics_is_refused() -> None:
    module = nn.Sequential(nn.InstanceNorm2d(2, track_running_stats=True), nn.Conv2d(2, 5, 6))
    with pytest.raises(ValueError, match="track_running_stats=False"):
        task_of(module)
