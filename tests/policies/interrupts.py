"""What must hold of interrupted rows, whoever has recorded them."""

from collections import defaultdict

import numpy as np

import tardigrad as tg
from tardigrad.policies import Policy
from tardigrad.policies.wrapping import layers


def check_interrupts(schedule: tg.Schedule, policy: Policy) -> None:
    """Nobody is interrupted at a view that is new enough: some shard was ahead of it by then."""
    (*_, innermost) = layers(policy)
    bound = innermost.bound if isinstance(innermost, tg.Ringmaster) else 1
    ahead: dict[int, list[int]] = defaultdict(list)
    for at in np.nonzero(schedule.interrupted[schedule.drop_row])[0].tolist():
        row, shard = int(schedule.drop_row[at]), int(schedule.drop_shard[at])
        made = np.count_nonzero(schedule.group_shard[: schedule.drop_after[at]] == shard)
        ahead[row].append(int(made - schedule.read[row, shard]))
    for row, versions in ahead.items():
        everywhere = len(versions) == schedule.shards  # else who interrupted it may not have heard
        assert not everywhere or max(versions) >= bound, (
            f"row {row} was interrupted {versions} ahead"
        )
