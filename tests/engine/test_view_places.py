"""Slots: whoever reads a version finds that version, and no more slots than must be."""

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.engine.fast.batch_sizes import choose_sizes, cover
from tardigrad.engine.fast.batches import Batches, just_in_time
from tardigrad.engine.fast.view_places import VersionSlots, assign_slots
from tardigrad.engine.kernels.update_table import NOWHERE
from tardigrad.policies import Policy
from tardigrad.scheduling import Schedule

CASES: dict[str, tuple[Policy, tg.Gamma | tg.Dispatcher, int]] = {
    "gamma": (tg.Async(), tg.Gamma(workers=12, heterogeneous=True), 1),
    "uniform": (tg.Async(), tg.Dispatcher(workers=12), 1),
    "no wait": (tg.Async(wait=False), tg.Gamma(workers=5), 1),
    "shards": (tg.Async(), tg.Gamma(workers=6), 3),
    "sync": (tg.Sync(), tg.Gamma(workers=6), 2),
    "backup": (tg.Backup(backups=2), tg.Gamma(workers=8, heterogeneous=True), 1),
    "stale": (tg.StaleSynchronous(bound=2), tg.Gamma(workers=8, heterogeneous=True), 2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [1, 4, 100])
def test_every_read_finds_its_version(name: str, chunk: int) -> None:
    policy, cluster, shards = CASES[name]
    schedule = tg.schedule(policy, cluster, updates=150, seed=2, shards=shards)
    batches = just_in_time(schedule, chunk)
    for shard in range(shards):
        follow(schedule, batches, shard, assign_slots(schedule, batches, shard))


def follow(schedule: Schedule, batches: Batches, shard: int, slots: VersionSlots) -> None:
    """Do what an execution does with the slots, and see what lies in them."""
    table = np.full(slots.count, -1)
    table[slots.of[0]] = 0
    version = 0
    for b in range(batches.count):
        for row in batches.of(b):  # the batch is computed
            read = schedule.read[row, shard]
            assert table[slots.of[read]] == read
        for group in range(batches.window[b], batches.window[b + 1]):
            if schedule.group_shard[group] != shard:
                continue
            for row in schedule.group(group):  # the rule compares θ with the view
                read = schedule.read[row, shard]
                assert table[slots.of[read]] == read
            version += 1
            if slots.of[version] != NOWHERE:
                table[slots.of[version]] = version
            alive = slots.alive(version)
            assert np.array_equal(table[slots.of[alive]], alive)


def test_as_many_slots_as_workers_hold_views() -> None:
    for cluster in (tg.Gamma(workers=40), tg.Dispatcher(workers=40)):
        schedule = tg.schedule(tg.Async(), cluster, updates=2000)
        assert assign_slots(schedule, just_in_time(schedule, 8), 0).count <= 41


def test_sizes_cover_what_comes_and_little_more() -> None:
    assert choose_sizes(np.array([16] * 100 + [3]), 3, 0.5) == (16,)
    sizes = choose_sizes(np.array([16, 2] * 50), 3, 0.5)
    assert sizes == (16, 2)
    assert cover(35, sizes, 0.5) == (16, 16, 2, 2)
    assert choose_sizes(np.array([], dtype=np.int64), 3, 0.5) == (1,)
    for count in range(1, 40):
        assert sum(cover(count, (16, 4), 0.5)) >= count
