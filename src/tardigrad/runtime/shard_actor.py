"""A shard as a Ray actor, which can be a shard of one run after the other."""

import gc
from typing import Any

import ray

from tardigrad.core.allocation import keep_freed_memory
from tardigrad.protocol.calls import ShardCall
from tardigrad.runtime.ray_setup import ActorPlace, RaySetup
from tardigrad.runtime.shard_process import LifeEnded
from tardigrad.runtime.shard_shell import SentOrigin, ShardShell


class ShardActor:
    def __init__(self) -> None:
        self._shell: ShardShell | None = None
        keep_freed_memory()
        gc.freeze()  # what is loaded stays: looking through it takes 0.1 s at the end of each run

    def prepare(self, setup: RaySetup, sent: SentOrigin, held: bool) -> ActorPlace:
        """Become a shard's process; the answer is where it is."""
        self._end()
        self._shell = ShardShell(setup, sent, held, ActorPlace.here())
        return self._shell.place

    @ray.method(concurrency_group="control")
    def call(self, call: ShardCall) -> Any:
        """What the driver asks."""
        return self._of_run().call(call)

    @ray.method(concurrency_group="watch")
    def watch(self, until_done: bool = False) -> None:
        """Wait for the end, or until its updates are made; fails with the error that ended it, or
        as its process dies. A driver that could not reach this process asks a second time, and is
        heard when all is over."""
        shell = self._shell
        if shell is not None:
            shell.watch(until_done)

    @ray.method(concurrency_group="control")
    def close(self) -> None:
        self._end()

    def _end(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
            del shell
            gc.collect()  # its threads know it and it knows them, and it may hold gigabytes

    def _of_run(self) -> ShardShell:
        if self._shell is None:
            raise LifeEnded("it belongs to no run")
        return self._shell
