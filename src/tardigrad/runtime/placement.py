"""What a run's processes take of a cluster, and where they go. Nothing here needs Ray."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from tardigrad.core.checks import not_negative, number, one_of, positive, require

Strategy = Literal["spread", "pack"]

OWN_NAMES = {"CPU": "cpus_per_worker", "GPU": "gpus_per_worker"}
"""Resources that have a setting of their own."""
SMALLEST = 0.0001
"""Ray counts in steps of this size."""


class ActorRoom(NamedTuple):
    """What one actor takes of its node."""

    cpus: float = 0.0
    gpus: float = 0.0
    resources: tuple[tuple[str, float], ...] = ()
    """Any others that nodes are said to have, by name."""

    def bound_to(self, resources: Mapping[str, float]) -> "ActorRoom":
        """The same where nodes have these too."""
        return self._replace(resources=tuple(sorted({**dict(self.resources), **resources}.items())))

    def amounts(self) -> dict[str, float]:
        """What it takes, by Ray's names; empty where it fits everywhere."""
        every = {"CPU": self.cpus, "GPU": self.gpus, **dict(self.resources)}
        return {name: amount for name, amount in every.items() if amount}


class ActorRooms(NamedTuple):
    """What the actors of a run take."""

    worker: ActorRoom
    shard: ActorRoom
    bound: Mapping[tuple[str, int], Mapping[str, float]]
    """What single ones take besides, to be on nodes that have it: ("worker", i), ("shard", i)."""

    def first(self, kind: str, number: int) -> ActorRoom:
        return self.later(kind).bound_to(self.bound.get((kind, number), {}))

    def later(self, kind: str) -> ActorRoom:
        """Of a replacement: the nodes that the first was bound to may be gone."""
        return self.worker if kind == "worker" else self.shard


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What a run takes of a Ray cluster: [ray] in files."""

    gpus_per_worker: float | None = None
    """A whole number of GPUs, or a share of one: four workers with 0.25 have one together. None:
    none for a task on the CPU; for one on the GPU a whole one each, but on a Ray of the run's own
    equal shares of this machine's."""
    cpus_per_worker: float | None = None
    """None: one each. On a Ray of the run's own they share this machine, whatever this says."""
    resources_per_worker: Mapping[str, float] = field(default_factory=dict)
    """Others that a node must have for each worker on it, by the names that it was started with."""
    placement: Strategy = "spread"
    """Over as many nodes as there are, or packed on as few as hold them."""
    wait_s: float = 300.0
    """How long to wait for room, for a cluster that grows; 0: refused at once."""

    def __post_init__(self) -> None:
        if self.cpus_per_worker is not None:
            _countable("cpus_per_worker", self.cpus_per_worker)
        if self.gpus_per_worker is not None:
            gpus = _countable("gpus_per_worker", self.gpus_per_worker)
            require(
                gpus <= 1 or gpus.is_integer(),
                f"gpus_per_worker must be whole GPUs or a share of one, got {gpus:g}: Ray gives no "
                f"parts of several, so use {math.floor(gpus)} or {math.ceil(gpus)}",
            )
        one_of("placement", self.placement, ("spread", "pack"))
        not_negative("wait_s", self.wait_s)
        require(
            isinstance(self.resources_per_worker, Mapping),
            'resources_per_worker are amounts by name, such as {"fast_disk": 1}, got '
            f"{self.resources_per_worker!r}",
        )
        for name, amount in self.resources_per_worker.items():
            require(
                name not in OWN_NAMES,
                f"resources_per_worker: {name} has a setting of its own, {OWN_NAMES.get(name)}",
            )
            positive(f"resources_per_worker: {name}", amount)
            _countable(f"resources_per_worker: {name}", amount)

    def worker_room(self, cpus: float, gpus: float) -> ActorRoom:
        """cpus, gpus: of a worker, where nothing is said."""
        return ActorRoom(
            cpus if self.cpus_per_worker is None else self.cpus_per_worker,
            gpus if self.gpus_per_worker is None else self.gpus_per_worker,
            tuple(sorted(self.resources_per_worker.items())),
        )

    def check_one_machine(self, workers: int, gpus: int) -> None:
        """Refuse what a Ray of the run's own, on this machine, can never have."""
        for name in self.resources_per_worker:
            raise ValueError(
                f"resources_per_worker: {name} is of nodes that were started with it, and this run "
                "starts a Ray of its own, which has none: give the address of a cluster"
            )
        each = self.gpus_per_worker
        if each:
            fit = gpus * math.floor(1 / each + 1e-9) if each < 1 else int(gpus / each)
            require(
                workers <= fit,
                f"gpus_per_worker = {each:g}, and this machine has {counted(gpus, 'GPU')}, so "
                f"{fit} of {counted(workers, 'worker')} can have theirs: use fewer workers, "
                "smaller shares such as 0.25, or a cluster (--address)",
            )


def equal_share(workers: int, gpus: int) -> float:
    """The most that each worker can have where all have the same: whole GPUs, or a share of one."""
    if workers <= gpus:
        return float(gpus // workers)
    share = 1 / math.ceil(workers / max(1, gpus))
    return math.floor(share * 10_000 + 1e-9) / 10_000  # as Ray counts


def counted(amount: float, word: str) -> str:
    return f"{amount:g} {word}{'' if amount == 1 else 's'}"


def _countable(name: str, value: object) -> float:
    not_negative(name, value)
    amount = number(name, value)
    require(
        amount == 0 or amount >= SMALLEST,
        f"{name} = {value!r} is less than Ray can count: use at least {SMALLEST:g}",
    )
    return amount
