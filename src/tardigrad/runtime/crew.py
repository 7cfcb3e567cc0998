"""The processes of runs: actors that can be used again, because starting one takes seconds."""

from typing import Any

import ray

from tardigrad.runtime.shard import ShardHost
from tardigrad.runtime.worker import Worker


class Crew:
    """Idle actors by kind. `with Crew() as crew: train(…, crew=crew)` keeps them between runs."""

    def __init__(self, cpus: float = 0.0) -> None:
        self.cpus = cpus
        self._idle: dict[str, list[Any]] = {"worker": [], "shard": []}
        self._actors: dict[str, Any] = {
            kind: ray.remote(concurrency_groups=groups)(cls)  # type: ignore[call-overload]
            for kind, cls, groups in (
                ("shard", ShardHost, {"control": 1, "watch": 1}),
                ("worker", Worker, {"inbox": 1}),
            )
        }

    def take(self, kind: str, resources: dict[str, float] | None = None) -> Any:
        """An actor, idle or new; `resources` bind it to nodes that have them."""
        if self._idle[kind] and not resources:
            return self._idle[kind].pop()
        return self._actors[kind].options(num_cpus=self.cpus, resources=resources or {}).remote()

    def give_back(self, kind: str, actor: Any) -> None:
        self._idle[kind].append(actor)

    def close(self) -> None:
        for actors in self._idle.values():
            for actor in actors:
                ray.kill(actor)
            actors.clear()

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
