"""Workers on a GPU, parameters in the host's memory: shared, killed, recovered, replayed."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import tardigrad as tg
from tardigrad.recording.record import read_record
from tardigrad.recording.replay import replay_recorded
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.runtime.faults import Fault
from tests.runtime.run_checks import assert_nothing_lost_or_twice

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

UPDATES = 120


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    first = (nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    second = (nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.Dropout(0.1), nn.Flatten())
    return nn.Sequential(*first, *second, nn.Linear(16 * 36, 10))


def on_the_gpu(model: nn.Module) -> tg.ModuleTask:
    torch.manual_seed(1)
    labels = torch.arange(400) % 10
    images = torch.randn(10, 1, 12, 12)[labels] + 0.5 * torch.randn(400, 1, 12, 12)
    return tg.ModuleTask(model, "cross_entropy", (images, labels), batch_size=32, device="cuda")


@pytest.mark.parametrize("model", [perceptron, convolutions])
@pytest.mark.parametrize(
    "faults", [[], [fail_at(worker=1, step=8)], [fail_at(shard=0, version=30)]]
)
def test_a_run_whose_workers_share_a_gpu_replays(
    model: Callable[[], nn.Module], faults: list[Fault], pool: ActorPool, tmp_path: Path
) -> None:
    task, rule = on_the_gpu(model()), tg.rules.gap_aware(lr=0.02)
    run = train(
        task, rule, workers=4, shards=2, updates=UPDATES,
        evaluation=tg.Evaluation(40, splits=["train"]),
        checkpoints=tg.Checkpoints(tmp_path, every=50),
        processes=tg.Processes(pool=pool, gpus_per_worker=0.25, digest_every=10),
        scenario=tg.Scenario(faults=faults, impose=tg.Gamma(workers=4, mean_s=0.02)),
    )  # fmt: skip
    assert run.params.device.type == "cpu"
    assert run.module()(torch.zeros(1, 1, 12, 12, device="cuda")).shape == (1, 10)
    assert run.history.records[-1]["train_loss"] < run.history.records[0]["train_loss"]
    assert_nothing_lost_or_twice(tmp_path, 2, UPDATES)
    record = read_record(tmp_path)
    assert torch.cuda.get_device_name() in record["facts"]["device"]
    replayed = replay_recorded(run.schedule, task, rule, record)
    assert replayed.difference is None
    assert replayed.compared == 2 * UPDATES // 10
    assert torch.equal(replayed.run.params, run.params)


def test_a_record_of_a_gpu_is_not_replayed_on_a_cpu(pool: ActorPool, tmp_path: Path) -> None:
    task, rule = on_the_gpu(perceptron()), tg.rules.sgd(lr=0.02)
    run = train(
        task, rule, updates=5, checkpoints=tg.Checkpoints(tmp_path),
        processes=tg.Processes(pool=pool),
    )  # fmt: skip
    train_set = task.data.train
    data = (train_set.inputs.cpu(), train_set.targets.cpu())
    elsewhere = tg.ModuleTask(perceptron(), "cross_entropy", data, batch_size=32)
    with pytest.raises(ValueError, match=r"another device \(recorded NVIDIA .*, here cpu\)"):
        replay_recorded(run.schedule, elsewhere, rule, read_record(tmp_path))


def test_layers_without_repeatable_kernels_are_refused_by_name(pool: ActorPool) -> None:
    model = nn.Sequential(
        nn.Unflatten(1, (1, 144)), nn.AdaptiveMaxPool1d(9), nn.Flatten(), nn.Linear(9, 10)
    )
    task = on_the_gpu(nn.Sequential(nn.Flatten(), nn.Linear(144, 144), model))  # fmt: skip
    with pytest.raises(ValueError, match="does not have a deterministic implementation: a recov"):
        train(task, tg.rules.sgd(lr=0.02), updates=5, processes=tg.Processes(pool=pool))


@pytest.mark.parametrize(
    ("processes", "why"),
    [
        (tg.Processes(gpus_per_worker=0), "the task is on cuda:0, so its workers need GPUs"),
        (tg.Processes(gpus_per_worker=99), "gpus_per_worker = 99, and this machine has"),
    ],
)
def test_workers_that_would_have_no_gpu_are_refused(
    processes: tg.Processes, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tardigrad.runtime.run_actors.starts_own", lambda address: True)
    with pytest.raises(ValueError, match=why):
        train(on_the_gpu(perceptron()), tg.rules.sgd(lr=0.02), updates=5, processes=processes)
