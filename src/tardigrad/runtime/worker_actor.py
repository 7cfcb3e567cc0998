"""A worker as a Ray actor, which can be a worker of one run after the other."""

import gc
from collections.abc import Mapping
from typing import Any

import ray

from tardigrad.core.allocation import keep_freed_memory
from tardigrad.protocol.calls import WorkerCall
from tardigrad.runtime.ray_setup import ActorPlace, RaySetup
from tardigrad.runtime.shard_process import LifeEnded
from tardigrad.runtime.worker_shell import WorkerShell


class WorkerActor:
    def __init__(self) -> None:
        self._shell: WorkerShell | None = None
        keep_freed_memory()
        gc.freeze()  # what is loaded stays: looking through it takes 0.1 s at the end of each run

    def prepare(self, setup: RaySetup, worker: int) -> ActorPlace:
        """Become worker number `worker` of a run; the answer is where this process is."""
        self._end()
        here = ActorPlace.here()
        self._shell = WorkerShell(setup, worker, here)
        return here

    @ray.method(concurrency_group="inbox")
    def call(self, call: WorkerCall, shards: Mapping[int, ActorPlace]) -> Any:
        """What the driver asks; `shards` are where they are now."""
        return self._of_run().call(call, shards)

    @ray.method(concurrency_group="watch")
    def watch(self) -> None:
        """Wait for the end; fails with the error that ended it, or as its process dies. A driver
        that could not reach this process asks a second time, and is heard when all is over."""
        shell = self._shell
        if shell is not None:
            shell.watch()

    @ray.method(concurrency_group="inbox")
    def close(self) -> None:
        self._end()

    def _end(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
            del shell
            gc.collect()  # its threads know it and it knows them, and it may hold gigabytes

    def _of_run(self) -> WorkerShell:
        if self._shell is None:
            raise LifeEnded("it belongs to no run")
        return self._shell
