"""What a run takes of a cluster: checked where it is written, shared out where it is not."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad.experiment import Spec, run_on_ray
from tardigrad.runtime.actor_pool import ActorPool
from tardigrad.runtime.placement import ActorRoom, ActorRooms, Placement, equal_share
from tardigrad.runtime.reserving import ActorKind

NONE: Any = "none"
LIST: Any = ["disk"]
MANY = {
    "updates": 20, "task": "logistic_regression", "rule": {"name": "sgd", "lr": 0.1},
    "cluster": {"name": "gamma", "workers": 2},
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tg.Processes(gpus_per_worker=-1), "gpus_per_worker must not be negative, got -1"),
        (lambda: tg.Processes(gpus_per_worker=1.5), "whole GPUs or a share of one, .* use 1 or 2"),
        (lambda: tg.Processes(gpus_per_worker=NONE), "must be a finite number, got 'none'"),
        (lambda: tg.Processes(gpus_per_worker=1e-5), "less than Ray can count: .* 0.0001"),
        (lambda: tg.Processes(cpus_per_worker=float("nan")), "cpus_per_worker must be a finite"),
        (lambda: tg.Processes(wait_s=-2), "wait_s must not be negative"),
        (lambda: tg.Processes(placement=NONE), "placement must be one of 'spread', 'pack'"),
        (lambda: tg.Processes(resources_per_worker=LIST), "amounts by name, such as"),
        (lambda: tg.Processes(resources_per_worker={"GPU": 1}), "its own, gpus_per_worker"),
        (lambda: tg.Processes(resources_per_worker={"disk": 0}), "disk must be greater than 0"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_written(
    make: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"gpu_per_worker": 1}, r"\[ray\] has no key 'gpu_per_worker'; did you mean 'gpus_per"),
        ({"gpus_per_worker": 2.5}, r"\[ray\] gpus_per_worker must be whole GPUs"),
        ({"placement": "apart"}, "ray.placement must be one of 'spread', 'pack'"),
        ({"wait_s": "long"}, "ray.wait_s must be a number"),
    ],
)
def test_a_file_is_told_with_its_path(section: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Spec.of({**MANY, "ray": section})


def test_a_file_says_what_python_says() -> None:
    disk = {"disk": 1.0}
    said = {"gpus_per_worker": 0.25, "placement": "pack", "resources_per_worker": disk}
    spec = Spec.of({**MANY, "ray": said})
    assert spec.make_placement() == Placement(
        gpus_per_worker=0.25, placement="pack", resources_per_worker=disk
    )
    assert Spec.of(spec.data()) == spec
    assert "ray" not in Spec.of(MANY).data()


@pytest.mark.parametrize(
    ("workers", "gpus", "share"),
    [(4, 1, 0.25), (3, 2, 0.5), (3, 1, 0.3333), (1, 2, 2.0), (4, 4, 1.0), (5, 2, 0.3333)],
)
def test_equal_shares_fit(workers: int, gpus: int, share: float) -> None:
    assert equal_share(workers, gpus) == share
    Placement(gpus_per_worker=share).check_one_machine(workers, gpus)  # it is not refused


@pytest.mark.parametrize(
    ("placement", "workers", "gpus", "message"),
    [
        (Placement(gpus_per_worker=2), 1, 1, "this machine has 1 GPU, so 0 of 1 worker can"),
        (Placement(gpus_per_worker=0.4), 3, 1, "has 1 GPU, so 2 of 3 workers can have theirs"),
        (Placement(gpus_per_worker=1), 1, 0, "has 0 GPUs, so 0 of 1 worker"),
        (Placement(resources_per_worker={"disk": 1}), 1, 4, "disk is of nodes that were started"),
    ],
)
def test_what_this_machine_never_has_is_refused(
    placement: Placement, workers: int, gpus: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        placement.check_one_machine(workers, gpus)


def test_only_the_first_of_those_that_are_bound_is() -> None:
    worker, shard = ActorRoom(1, 0.25, (("disk", 1.0),)), ActorRoom(1)
    rooms = ActorRooms(worker, shard, {("worker", 1): {"far": 1.0}})
    assert rooms.first("worker", 0) == rooms.later("worker") == worker
    assert rooms.first("worker", 1).amounts() == {"CPU": 1, "GPU": 0.25, "disk": 1.0, "far": 1.0}
    assert rooms.first("shard", 1) == shard
    assert ActorRoom().amounts() == {}


def test_actors_that_take_no_room_are_begun_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not shards first and workers when those are there: each takes seconds to start."""
    begun: list[ActorKind] = []

    def start(self: ActorPool, actor: ActorKind, strategy: object) -> object:
        begun.append(actor)
        return object()

    monkeypatch.setattr(ActorPool, "start", start)
    worker, shard = ActorKind("worker", ActorRoom()), ActorKind("shard", ActorRoom())
    pool = ActorPool()
    for many in (2, 3):
        pool.prepare([worker] * many + [shard], "spread", 0.0, lambda text: None)
        assert Counter(begun) == {worker: many, shard: 1}
    assert len({pool.take("worker") for _ in range(3)} | {pool.take("shard")}) == 4
    assert len(begun) == 4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpus_that_are_not_there_are_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tardigrad.runtime.run_actors.starts_own", lambda address: True)
    spec = Spec.of({**MANY, "ray": {"gpus_per_worker": 1}})
    with pytest.raises(ValueError, match="this machine has 0 GPUs, so 0 of 2 workers"):
        run_on_ray(spec, tmp_path / "run")
    assert not (tmp_path / "run").exists()
