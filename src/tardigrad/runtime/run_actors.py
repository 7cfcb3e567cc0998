"""The actors of a run: what each takes, and all of them found room for before it begins."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray
import torch

from tardigrad.core.checks import require
from tardigrad.runtime.actor_pool import ActorPool
from tardigrad.runtime.options import Processes
from tardigrad.runtime.placement import ActorRoom, ActorRooms, equal_share
from tardigrad.runtime.ray_cluster import connected, starts_own
from tardigrad.runtime.reserving import ActorKind
from tardigrad.tasks import Task


def check_room(task: Task, workers: int, processes: Processes) -> None:
    """Refuse what no cluster can give, or a Ray of our own cannot, before anything is started."""
    device = task.start().device
    require(
        device.type == "cpu" or processes.gpus_per_worker != 0,
        f"gpus_per_worker = 0, but the task is on {device}, so its workers need GPUs: leave it "
        "out, or give shares such as 0.25",
    )
    require(
        not device.index,
        f"the task is on {device}, but Ray says which GPU each worker sees, and that is its "
        'cuda:0: make the task with device="cuda"',
    )
    if processes.pool is None and starts_own(processes.address):
        processes.check_one_machine(workers, torch.cuda.device_count())


@contextmanager
def actors_of(
    processes: Processes, task: Task, workers: int, shards: int, tell: Callable[[str], None]
) -> Iterator[tuple[ActorPool, ActorRooms]]:
    """Within the block Ray is there, with room for all of them."""
    with pool_of(processes, workers, shards) as pool:
        rooms = _rooms(processes, task, workers, pool)
        numbered = [("worker", i) for i in range(workers)] + [("shard", i) for i in range(shards)]
        # Those that are bound to nodes of their own are placed when they are made.
        free = [who for who in numbered if who not in rooms.bound]
        actors = [ActorKind(kind, rooms.later(kind)) for kind, _ in free]
        pool.prepare(actors, processes.placement, processes.wait_s, tell)
        yield pool, rooms


@contextmanager
def pool_of(processes: Processes, workers: int, shards: int) -> Iterator[ActorPool]:
    """The given one, or one for this run alone."""
    if processes.pool is not None:
        yield processes.pool
        return
    cpus = shards + workers * (processes.cpus_per_worker or 1)
    with connected(processes.address, cpus) as each, ActorPool(each) as own:
        yield own


def _rooms(processes: Processes, task: Task, workers: int, pool: ActorPool) -> ActorRooms:
    gpus = 0.0
    if task.start().device.type != "cpu":
        gpus = 1.0
        if pool.cpus == 0:  # nobody else's: all of it is there to be shared out
            here = ray.cluster_resources().get("GPU", 0.0)  # type: ignore[no-untyped-call]
            gpus = equal_share(workers, int(here))
    worker = processes.worker_room(pool.cpus, gpus)
    return ActorRooms(worker, ActorRoom(pool.cpus), processes.resources or {})
