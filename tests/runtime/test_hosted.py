"""A task as shards see it whose gradients are computed elsewhere, here on a CPU for a GPU."""

import pickle

import pytest
import ray.cloudpickle
import torch
from torch import Tensor, nn

import tardigrad as tg
from tardigrad.runtime.sending import TaskPacker
from tardigrad.tasks import TASKS, Data, Split, Turn, quadratic
from tardigrad.tasks.hosted import HostedTask, hosted, repeatable


def task() -> tg.ModuleTask:
    """With buffers of BatchNorm."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    data = Data(
        Split(torch.randn(40, 4), torch.randn(40, 1)), Split(torch.randn(9, 4), torch.randn(9, 1))
    )
    return tg.ModuleTask(model, "mse", data, batch_size=8)  # fmt: skip


def sent(one: HostedTask) -> HostedTask:
    got: HostedTask = pickle.loads(ray.cloudpickle.dumps(one))
    return got


def test_on_the_cpu_a_task_is_itself() -> None:
    one = task()
    assert hosted(one) is one


@pytest.mark.parametrize("travels", [False, True])
def test_it_computes_what_its_task_computes(travels: bool) -> None:
    own = task()
    one = HostedTask(own, TaskPacker())
    if travels:
        one = sent(sent(one))  # also before it was used
    view, turn = own.start() * 1.1, Turn(1, 2, 3)
    expected, found = own.gradient(view, turn), one.gradient(view, turn)
    assert torch.equal(found.loss, expected.loss)
    assert torch.equal(found.grad, expected.grad)
    buffers = own.fold(own.start_buffers(), expected.buffers)
    folded = one.fold(one.start_buffers(), found.buffers)
    assert len(folded) == len(buffers) == 3
    assert all(map(torch.equal, folded, buffers))
    measured = one.evaluate(view, buffers, "validation")
    assert measured == own.evaluate(view, buffers, "validation") != {}
    assert torch.equal(one.start(), own.start())
    assert (one.layout, one.batch_size, one.epoch_size) == (own.layout, 8, 40)
    assert tuple(one.splits) == own.splits


def test_who_only_folds_opens_nothing_on_the_device() -> None:
    one = sent(HostedTask(task(), TaskPacker()))
    one.fold(one.start_buffers(), task().gradient(task().start(), Turn(0, 0, 0)).buffers)
    assert one.__dict__["_task"] is None


def test_gradients_are_not_written_over() -> None:
    own = task()
    one = HostedTask(own)
    first = one.gradient(own.start(), Turn(0, 0, 0)).grad
    before = first.clone()
    one.gradient(own.start(), Turn(0, 1, 1))
    assert torch.equal(first, before)


def test_another_device_is_refused_where_it_is_found() -> None:
    one = HostedTask(task(), TaskPacker())
    one.device_facts = "NVIDIA H200, CUDA 13.0"
    there = sent(one)
    with pytest.raises(ValueError, match=r"this process has cpu, but .* there is NVIDIA H200"):
        there.gradient(there.start(), Turn(0, 0, 0))


def test_closures_and_their_tensors_travel() -> None:
    scale = torch.tensor([2.0, 3.0])

    def gradient(view: Tensor, worker: int, step: int) -> Tensor:
        return scale * view

    own = tg.FunctionTask(torch.ones(2), gradient)
    one = sent(HostedTask(own, TaskPacker()))
    assert one.gradient(own.start(), Turn(0, 0, 0)).grad.tolist() == [2.0, 3.0]


def test_kernels_that_cannot_repeat_their_bits_are_refused() -> None:
    said = "frob_cuda does not have a deterministic implementation, but you set it. You can …"
    asked = r"^frob_cuda does not have a deterministic implementation: a recovery"
    with pytest.raises(ValueError, match=asked), repeatable():
        raise RuntimeError(said if torch.are_deterministic_algorithms_enabled() else "not set")
    assert not torch.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError, match="something else"), repeatable():
        raise RuntimeError("something else")


def test_what_the_process_had_set_stays() -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with repeatable():
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("make", [quadratic, TASKS["logistic_regression"]])
def test_a_gpu_that_is_not_there_is_told_in_one_line(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match="torch sees no GPU here: use"):
        make(device="cuda")
