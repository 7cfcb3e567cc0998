"""Room on a cluster for all processes of a run at once, waited for where it may still come."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import ray
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    placement_group_table,
    remove_placement_group,
)

from tardigrad.runtime.placement import ActorRoom, Strategy, counted

AT_ONCE_S = 2.0
"""What Ray may take to place what fits; nothing is said before."""
TOO_LITTLE_S = 0.1
"""Instead of it where nodes would have too little even if they were empty."""
LOOK_S = 5.0
"""Between looks at what is missing."""
POLL_S = 0.05
"""Between questions to Ray, which itself waits for whole seconds."""


class ActorKind(NamedTuple):
    """What an actor is, and what it takes."""

    kind: str
    room: ActorRoom


@contextmanager
def reserved(
    actors: Sequence[ActorKind], strategy: Strategy, wait_s: float, tell: Callable[[str], None]
) -> Iterator[list[str]]:
    """Within the block there is room for these; yields the node of each.

    Refused where there is none after `wait_s`. All or none is reserved, so two runs never wait for
    each other's half. Ray shows what is not there yet to its autoscaler, which may start nodes.
    """
    group = placement_group([actor.room.amounts() for actor in actors], strategy.upper())
    try:
        rooms = [actor.room for actor in actors]
        look_s = TOO_LITTLE_S if _too_little(rooms) else AT_ONCE_S
        until = time.monotonic() + max(wait_s, look_s)
        told = ""
        while not _placed(group, look_s):
            left_s = until - time.monotonic()
            missing = _missing(rooms)
            if left_s <= 0:
                raise ValueError(
                    f"there is no room on the cluster for {_words(actors)}"
                    + (f" after {wait_s:g} s of waiting" if wait_s else "")
                    + f": {missing}. Ask for less, add nodes, or wait longer for them: wait_s "
                    "under [ray], Processes(wait_s=…)"
                )
            if missing != told:
                tell(f"waiting up to {left_s:.0f} s for room for {_words(actors)}: {missing}")
                told = missing
            look_s = min(LOOK_S, left_s)
        nodes = placement_group_table(group)["bundles_to_node_id"]
        yield [nodes[index] for index in range(len(actors))]
    finally:
        remove_placement_group(group)


def _placed(group: PlacementGroup, within_s: float) -> bool:
    until = time.monotonic() + within_s
    while not group.wait(0):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_S)
    return True


def _words(actors: Sequence[ActorKind]) -> str:
    """4 workers (1 CPU, 0.25 GPUs each) and 1 shard (1 CPU each)"""
    groups = []
    for actor, many in Counter(actors).items():
        each = ", ".join(counted(amount, name) for name, amount in actor.room.amounts().items())
        groups.append(f"{counted(many, actor.kind)} ({each} each)")
    return " and ".join(groups)


def _nodes() -> list[Mapping[str, float]]:
    """What each node has, free or taken."""
    return [
        node["Resources"]
        for node in ray.nodes()  # type: ignore[no-untyped-call]
        if node["Alive"]
    ]


def _too_little(rooms: Sequence[ActorRoom]) -> bool:
    """Whether all nodes together have less than is needed, or none has as much as one takes."""
    nodes = _nodes()
    needed: Counter[str] = Counter()
    most: dict[str, float] = {}
    for room in rooms:
        needed.update(room.amounts())
        most |= {name: max(most.get(name, 0.0), a) for name, a in room.amounts().items()}
    return any(
        needed[name] > sum(there := [node.get(name, 0.0) for node in nodes]) + 1e-6
        or amount > max(there, default=0.0) + 1e-6
        for name, amount in most.items()
    )


def _missing(rooms: Sequence[ActorRoom]) -> str:
    """Which resource stands in the way, in one line."""
    nodes = _nodes()
    free: Mapping[str, Any] = ray.available_resources()  # type: ignore[no-untyped-call]
    said = []
    for name in sorted({name for room in rooms for name in room.amounts()}):
        amounts = [room.amounts().get(name, 0.0) for room in rooms]
        most = max((node.get(name, 0.0) for node in nodes), default=0.0)
        if max(amounts) > most:
            said.append(f"no node has {counted(max(amounts), name)} (the most on one is {most:g})")
        elif sum(amounts) > free.get(name, 0.0) + 1e-6:
            total = sum(node.get(name, 0.0) for node in nodes)
            said.append(
                f"{counted(sum(amounts), name)} are needed, and {free.get(name, 0.0):g} of "
                f"{total:g} are free"
            )
    return "; ".join(said) or "what is free lies in pieces on nodes, into which they do not fit"
