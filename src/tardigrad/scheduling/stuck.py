"""Why a simulated run cannot go on, in words."""

from collections.abc import Collection, Sequence

from tardigrad.protocol.shard import ShardControl
from tardigrad.protocol.worker import WorkerControl


def stuck(
    shards: Sequence[ShardControl],
    workers: Sequence[WorkerControl],
    stopped: Collection[int],
    now_s: float,
) -> str:
    """stopped: shards that something reached after they stopped for good."""
    why = "all workers wait for each other"
    if not any(worker.present for worker in workers):
        why = "all workers are gone"
    elif stopped:
        why = f"shards {sorted(stopped)} have stopped for good"
    versions = [shard.version for shard in shards]
    return (
        f"{why}: no shard can go on after time {now_s:g}, "
        f"and the shards are at versions {versions} of {shards[0].updates}"
    )
