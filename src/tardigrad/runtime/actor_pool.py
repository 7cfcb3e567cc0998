"""The processes of runs: actors that can be used again, because starting one takes seconds."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Self

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from tardigrad.runtime.placement import ActorRoom, Strategy
from tardigrad.runtime.reserving import ActorKind, reserved
from tardigrad.runtime.shard_actor import ShardActor
from tardigrad.runtime.worker_actor import WorkerActor

SPREAD = "SPREAD"
"""How Ray places actors for which no node was found before: evenly over the nodes."""


class ActorPool:
    """Idle actors by kind. `with ActorPool() as pool: train(…, processes=Processes(pool=pool))`
    keeps them, and what they take of the cluster, between runs."""

    def __init__(self, cpus: float = 0.0) -> None:
        self.cpus = cpus
        """What an actor takes, where a run does not say otherwise."""
        self._idle: dict[ActorKind, list[Any]] = {}
        self._kinds: dict[Any, ActorKind] = {}
        self._actors: dict[str, Any] = {
            kind: ray.remote(concurrency_groups=groups)(cls)  # type: ignore[call-overload]
            for kind, cls, groups in (
                ("shard", ShardActor, {"control": 1, "watch": 1}),
                ("worker", WorkerActor, {"inbox": 1, "watch": 1}),
            )
        }

    def prepare(
        self,
        actors: Sequence[ActorKind],
        strategy: Strategy,
        wait_s: float,
        tell: Callable[[str], None],
    ) -> None:
        """Start those of these that are not here yet: all at once, because each takes seconds, and
        where they take room, all of them or none."""
        lacking: list[ActorKind] = []
        for actor, many in Counter(actors).items():
            idle = self._idle.setdefault(actor, [])
            missing = [actor] * max(0, many - len(idle))
            if actor.room.amounts():
                lacking += missing
            else:
                idle += [self.start(one, SPREAD) for one in missing]
        if not lacking:
            return
        # What is reserved is given up when its actors already stand in line for it, each at its
        # node: nobody else gets it. Kept for the run, it would be lost as a whole with one node.
        with reserved(lacking, strategy, wait_s, tell) as nodes:
            for actor, node in zip(lacking, nodes, strict=True):
                at = NodeAffinitySchedulingStrategy(node, soft=True)
                self._idle.setdefault(actor, []).append(self.start(actor, at))

    def take(self, kind: str, room: ActorRoom | None = None) -> Any:
        """An actor, idle or new."""
        actor = ActorKind(kind, ActorRoom(self.cpus) if room is None else room)
        idle = self._idle.setdefault(actor, [])
        return idle.pop(0) if idle else self.start(actor, SPREAD)

    def start(self, actor: ActorKind, strategy: Any) -> Any:
        """A new one, which is this pool's."""
        cpus, gpus, resources = actor.room
        options = {"num_cpus": cpus, "num_gpus": gpus, "resources": dict(resources)}
        new = self._actors[actor.kind].options(**options, scheduling_strategy=strategy).remote()
        self._kinds[new] = actor
        return new

    def give_back(self, actor: Any) -> None:
        self._idle[self._kinds[actor]].append(actor)

    def discard(self, actor: Any) -> None:
        """End it, whatever it is doing."""
        del self._kinds[actor]
        ray.kill(actor)

    def close(self) -> None:
        """End them all, also those that nobody has given back."""
        for actor in list(self._kinds):
            self.discard(actor)
        self._idle.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
