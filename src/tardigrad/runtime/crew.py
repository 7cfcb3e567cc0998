"""The processes of runs: actors that can be used again, because starting one takes seconds."""

from collections.abc import Mapping
from typing import Any

import ray

from tardigrad.runtime.shard import ShardHost
from tardigrad.runtime.worker import Worker

Berth = tuple[str, tuple[tuple[str, float], ...]]
"""What an actor is, and the resources it was bound to."""


class Crew:
    """Idle actors by kind, kept between runs:
    `with Crew() as crew: train(…, processes=Processes(crew=crew))`."""

    def __init__(self, cpus: float = 0.0) -> None:
        self.cpus = cpus
        self._idle: dict[Berth, list[Any]] = {}
        self._berths: dict[Any, Berth] = {}
        self._actors: dict[str, Any] = {
            kind: ray.remote(concurrency_groups=groups)(cls)  # type: ignore[call-overload]
            for kind, cls, groups in (
                ("shard", ShardHost, {"control": 1, "watch": 1}),
                ("worker", Worker, {"inbox": 1}),
            )
        }

    def take(self, kind: str, resources: Mapping[str, float] | None = None) -> Any:
        """An actor, idle or new; `resources` bind it to nodes that have them."""
        berth = (kind, tuple(sorted((resources or {}).items())))
        idle = self._idle.setdefault(berth, [])
        if idle:
            return idle.pop()
        bound = dict(resources or {})
        new = self._actors[kind].options(num_cpus=self.cpus, resources=bound).remote()
        self._berths[new] = berth
        return new

    def give_back(self, actor: Any) -> None:
        self._idle[self._berths[actor]].append(actor)

    def close(self) -> None:
        for actors in self._idle.values():
            for actor in actors:
                ray.kill(actor)
            actors.clear()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
