"""How fast gradients go out and parameters come back: on this runtime, and two other ways.

All ways do the same work, a round trip: a worker's gradient reaches the server, the server takes a
step of plain SGD, and the worker has the new parameters in memory of its own. No way computes
anything, and every process uses one thread. The numbers are those of workers that do nothing else.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray
import torch
from torch import Tensor

from tardigrad.bench import gloo
from tardigrad.bench.gloo import LR, WARM
from tardigrad.core.checks import one_of
from tardigrad.core.layout import Layout
from tardigrad.rules import sgd
from tardigrad.runtime.actor_pool import ActorPool
from tardigrad.runtime.options import Processes
from tardigrad.runtime.ray_cluster import FAR, NEAR, local, two_nodes
from tardigrad.runtime.training import train
from tardigrad.tasks import FunctionTask, Gradient, Turn

WAYS = ("tardigrad", "actor", "gloo")
OBJECT_STORE_BYTES = 1024**3
"""The ordinary actor's arrays must fit, or it would be measured while Ray writes them to disk."""


class Rates:
    """The processes of all ways, waiting for their turns."""

    def __init__(self, pool: ActorPool, workers: int, nodes: int = 1) -> None:
        self._pool = pool
        # Bound to their nodes: Ray would put a server beside its workers where it can.
        self._near: dict[str, float] | None = None if nodes == 1 else {NEAR: 1.0}
        self._far: dict[str, float] | None = None if nodes == 1 else {FAR: 1.0}
        self._server = _start(Peer, self._near)
        self._actor = _start(ParameterServer, self._near)
        self._workers = [_start(Peer, self._far) for _ in range(workers)]
        self._met = False
        self._known: dict[tuple[int, int], float] = {}

    def rate(self, way: str, size: int, workers: int, seconds: float) -> float:
        """Round trips per second of so many workers together, over about so many seconds."""
        one_of("way", way, WAYS)
        if way == "tardigrad":
            return self._tardigrad(size, workers, seconds)
        if way == "actor":
            return self._plain(size, workers, seconds)
        return self._gloo(size, workers, seconds)

    def _tardigrad(self, size: int, workers: int, seconds: float) -> float:
        """The whole runtime, as `train` runs it: its log, its checks, its recorded schedule."""
        warm = WARM * workers
        updates = warm + max(10, int(seconds * self._known.get((size, workers), 0.0)))
        bound = None
        if self._near and self._far:
            bound = {("shard", 0): self._near} | {("worker", w): self._far for w in range(workers)}
        run = train(
            Still(size),
            sgd(lr=LR),
            workers=workers,
            updates=updates,
            processes=Processes(pool=self._pool, resources=bound, shared_memory=self._far is None),
        )
        times = run.schedule.group_time_s
        rate = (updates - warm) / float(times[-1] - times[warm - 1])
        self._known[size, workers] = rate
        return rate

    def _plain(self, size: int, workers: int, seconds: float) -> float:
        ray.get(self._actor.reset.remote(size))
        asked = [w.ask_actor.remote(self._actor, size, seconds) for w in self._workers[:workers]]
        return float(sum(ray.get(asked)))

    def _gloo(self, size: int, workers: int, seconds: float) -> float:
        if not self._met:
            with tempfile.TemporaryDirectory() as folder:
                peers = [self._server, *self._workers]
                where = f"file://{folder}/meeting"
                ray.get([p.meet.remote(where, r, len(peers)) for r, p in enumerate(peers)])
            self._met = True
        served = self._server.serve.remote(size, workers, seconds)
        ray.get([worker.ask_gloo.remote(size) for worker in self._workers[:workers]])
        return float(ray.get(served))

    def close(self) -> None:
        for actor in [self._server, self._actor, *self._workers]:
            ray.kill(actor)


@contextmanager
def measured_rates(workers: int, nodes: int = 1) -> Iterator[Rates]:
    """For up to so many workers, on a Ray of our own: one node, or two with all workers on the
    other one than the server, where nothing is shared."""
    start = local if nodes == 1 else two_nodes
    with start(2 * workers + 3, OBJECT_STORE_BYTES), ActorPool() as pool:
        made = Rates(pool, workers, nodes)
        try:
            yield made
        finally:
            made.close()


def _start(process: type, resources: dict[str, float] | None = None) -> Any:
    actor: Any = ray.remote(process)
    return actor.options(num_cpus=0, resources=resources or {}).remote()


class Still(FunctionTask):
    """A task that costs nothing: every gradient is the same one. It travels as its size."""

    leaves_view = True

    def __init__(self, size: int) -> None:
        self.size = size
        self.layout = Layout.flat(size)
        self._made: Gradient | None = None

    def start(self) -> Tensor:
        return torch.zeros(self.size)

    def gradient(self, view: Tensor, turn: Turn) -> Gradient:
        if self._made is None:
            self._made = Gradient(torch.zeros(()), torch.ones(self.size))
        return self._made


class ParameterServer:
    """The actor one would write first."""

    def reset(self, size: int) -> None:
        self.weights = np.zeros(size, np.float32)

    def apply_gradients(self, grad: Any) -> None:
        self.weights -= np.float32(LR) * grad

    def get_weights(self) -> Any:
        return self.weights


class Peer:
    """A process for the other ways: a worker, or gloo's server."""

    def __init__(self) -> None:
        torch.set_num_threads(1)

    def ask_actor(self, server: Any, size: int, seconds: float) -> float:
        """Round trips per second with an ordinary actor, which it does not wait for in between."""
        grad, view = np.ones(size, np.float32), np.empty(size, np.float32)
        count = -WARM
        began = time.perf_counter()
        while count <= 0 or time.perf_counter() < began + seconds:
            if count == 0:
                began = time.perf_counter()
            server.apply_gradients.remote(grad)
            view[:] = ray.get(server.get_weights.remote())
            count += 1
        return count / (time.perf_counter() - began)

    def meet(self, where: str, rank: int, peers: int) -> None:
        gloo.meet(where, rank, peers)

    def serve(self, size: int, workers: int, seconds: float) -> float:
        return gloo.serve(size, workers, seconds)

    def ask_gloo(self, size: int) -> None:
        gloo.ask(size)
