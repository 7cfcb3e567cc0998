"""The processes of runs: actors that can be used again, because starting one takes seconds."""

from collections.abc import Mapping
from typing import Any, Self

import ray

from tardigrad.runtime.shard_actor import ShardActor
from tardigrad.runtime.worker_actor import WorkerActor

Binding = tuple[str, tuple[tuple[str, float], ...]]
"""What an actor is, and the resources it was bound to."""

SPREAD = "SPREAD"
"""How Ray places actors that are bound to nothing: evenly over the nodes."""


class ActorPool:
    """Idle actors by kind. `with ActorPool() as pool: train(…, processes=Processes(pool=pool))`
    keeps them between runs."""

    def __init__(self, cpus: float = 0.0) -> None:
        self.cpus = cpus
        self._idle: dict[Binding, list[Any]] = {}
        self._bindings: dict[Any, Binding] = {}
        self._actors: dict[str, Any] = {
            kind: ray.remote(concurrency_groups=groups)(cls)  # type: ignore[call-overload]
            for kind, cls, groups in (
                ("shard", ShardActor, {"control": 1, "watch": 1}),
                ("worker", WorkerActor, {"inbox": 1, "watch": 1}),
            )
        }

    def take(self, kind: str, resources: Mapping[str, float] | None = None) -> Any:
        """An actor, idle or new; `resources` bind it to nodes that have them."""
        binding = (kind, tuple(sorted((resources or {}).items())))
        idle = self._idle.setdefault(binding, [])
        if idle:
            return idle.pop()
        options: dict[str, Any] = {"num_cpus": self.cpus, "resources": dict(resources or {})}
        if not resources:
            options["scheduling_strategy"] = SPREAD
        new = self._actors[kind].options(**options).remote()
        self._bindings[new] = binding
        return new

    def give_back(self, actor: Any) -> None:
        self._idle[self._bindings[actor]].append(actor)

    def discard(self, actor: Any) -> None:
        """End it, whatever it is doing."""
        del self._bindings[actor]
        ray.kill(actor)

    def close(self) -> None:
        """End them all, also those that nobody has given back."""
        for actor in list(self._bindings):
            self.discard(actor)
        self._idle.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
