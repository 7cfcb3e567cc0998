"""What a finished run gives: a model in plain PyTorch, and two lines that say what it was."""

import sys

import pytest
import torch
from torch import nn

import tardigrad as tg
from tardigrad import rules
from tardigrad.engine import Run
from tardigrad.tasks import TASKS, Turn

UPDATES = 12


def net() -> nn.Sequential:
    """BatchNorm, with statistics of its own, and a layer that is not trained."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(5, 8), nn.BatchNorm1d(8, momentum=0.3), nn.ReLU(), nn.Linear(8, 3)
    )
    for parameter in net[0].parameters():
        parameter.requires_grad_(False)
    return net


def data() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    return torch.randn(64, 5, generator=draw), torch.randint(3, (64,), generator=draw)


def trained(workers: int = 3, ema: float | None = None) -> tuple[Run, tg.ModuleTask]:
    task = tg.ModuleTask(net(), "cross_entropy", data(), batch_size=8, dtype="float64")
    rule = rules.Rule(0.1, rules.Sgd(), ema=ema) if ema else rules.sgd(lr=0.1)
    run = tg.simulate(task, rule, cluster=tg.Gamma(workers=workers), updates=UPDATES)
    return run, task


def test_the_state_is_what_the_model_takes_and_computes_with() -> None:
    run, task = trained()
    ones_own = net().double()
    ones_own.load_state_dict(run.state_dict())
    inputs, targets = (t.double() if t.is_floating_point() else t for t in data())
    loss = nn.functional.cross_entropy(ones_own.eval()(inputs), targets)
    assert float(loss.detach()) == pytest.approx(
        task.evaluate(run.params, run.buffers, "train")["loss"], abs=1e-12
    )
    assert ones_own.state_dict()["1.num_batches_tracked"] == UPDATES


def test_the_module_goes_on_as_one_that_was_trained_in_plain_pytorch() -> None:
    """With one worker it is the plain loop, to the last statistic."""
    run, task = trained(workers=1)
    plain = net().double().train()
    wanted = [p for p in plain.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(wanted, lr=0.1)
    for step in range(UPDATES):
        inputs, targets = task.batch(Turn(0, step, step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(plain(inputs), targets).backward()
        optimizer.step()
    ours = run.module()
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=0, atol=1e-13)
    assert not ours.training
    ours.train()(data()[0].double())  # its statistics go on as the plain one's do
    plain(data()[0].double())
    for name, tensor in plain.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[name], tensor, rtol=0, atol=1e-13)


def test_what_is_given_is_a_copy() -> None:
    run, _ = trained()
    before = run.params.clone()
    with torch.no_grad():
        for parameter in run.module().parameters():
            parameter.zero_()
    for tensor in run.state_dict().values():
        tensor.zero_()
    assert torch.equal(run.params, before)
    assert any(bool(tensor.any()) for tensor in run.state_dict().values())


def test_the_average_is_given_where_there_is_one() -> None:
    run, _ = trained(ema=0.5)
    assert not torch.equal(run.state_dict(average=True)["3.weight"], run.state_dict()["3.weight"])
    with pytest.raises(ValueError, match=r"kept no running average: make it with ema"):
        trained()[0].module(average=True)


def test_a_task_without_a_module_has_names_alone() -> None:
    task = tg.FunctionTask(torch.ones(3), lambda view, worker, step: view)
    run = tg.simulate(task, rules.sgd(lr=0.1), cluster=tg.Gamma(workers=2), updates=4)
    (tensor,) = run.state_dict().values()
    assert torch.equal(tensor, run.params)
    with pytest.raises(ValueError, match="a FunctionTask has no module: take"):
        run.module()


def test_two_lines_say_what_it_was() -> None:
    task = TASKS["logistic_regression"](features=7, classes=3, train_size=100, validation=0)
    run = tg.simulate(
        task,
        rules.sgd(lr=0.1),
        cluster=tg.Gamma(workers=4),
        updates=1200,
        evaluation=tg.Evaluation(600, splits=("train",)),
    )
    first, second = repr(run).splitlines()
    assert first == "Run: 1,200 updates by 4 workers, 24 parameters, ended by updates"
    assert f"train_loss {run.history.records[-1]['train_loss']:.4g}" in second
    assert max(map(len, (first, second))) < 200


def test_a_frame_needs_pandas_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match="pip install pandas, or take"):
        trained()[0].frame()
