"""How much memory a schedule will take: what cannot fit is refused before it is begun."""

from tardigrad.core.checks import require
from tardigrad.core.memory import physical_bytes

GRADIENT, VERSION, GROUP = 40, 8, 40
"""Bytes of a schedule's arrays: per gradient, more per shard that it read, and per update."""
EVENTS = 4
"""How many times that the event loop holds while it makes them (measured: 4 to 6)."""
WORKER, LOOP_WORKER = 200, 1000
"""Bytes per worker: of step times in a closed form; of its half of the policy, and of what the
event queue keeps of it (measured: 220 and 1,300)."""
DRAW = 150
"""Bytes per step of a row, while its times are drawn; a row's are drawn together."""


def check_size(
    workers: int, updates: int, shards: int, gradients: int, closed: bool, batches: int = 1
) -> None:
    """Refuse a schedule that this machine cannot hold.

    Args:
        gradients: how many it will have, at least.
        closed: whether it comes in one piece, without the event loop.
        batches: the steps of a row whose times are drawn.
    """
    arrays = gradients * (GRADIENT + VERSION * shards) + updates * shards * GROUP
    needed = arrays + workers * WORKER if closed else EVENTS * arrays + workers * LOOP_WORKER
    rows = ""
    if batches > 1:
        needed, rows = needed + batches * DRAW, f", with {batches:,} steps a row,"
    there = physical_bytes()
    require(
        needed <= there,
        f"workers = {workers:,}, updates = {updates:,} and shards = {shards:,}{rows} make a "
        f"schedule that needs at least {needed / 1e9:,.0f} GB of memory, and this machine has "
        f"{there / 1e9:,.0f}: use fewer of them",
    )
