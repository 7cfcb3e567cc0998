"""What a worker and a shard send each other arrives in order, however long each message takes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count, pairwise

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Absence, Network
from tardigrad.policies import Arrival, Policy, PullHalf, PushHalf, Request
from tardigrad.policies.machine import ShardCommand, WorkerCommand

JITTERY = Network(latency_s=0.5, jitter=4.0, rare_probability=0.05, rare_delay_s=9.0)
UNANSWERED = (tg.Async(wait=False), tg.Partial(push=2, pull=0.5), tg.PartialPull(tg.Async(), 0.5))
"""Policies under which a worker or a shard sends again before the last message has come."""


@dataclass(frozen=True)
class Overheard(Policy):
    """Another policy, and what came to each shard and worker of it."""

    policy: Policy
    pushes: list[tuple[PushHalf, Arrival]] = field(default_factory=list)
    pulls: list[tuple[PullHalf, int, int]] = field(default_factory=list)

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        half = self.policy.push_half(workers)
        pushed = half.pushed

        def overheard(arrival: Arrival, now_s: float) -> list[ShardCommand]:
            self.pushes.append((half, arrival))
            return pushed(arrival, now_s)

        half.pushed = overheard  # type: ignore[method-assign]
        return half

    def pull_half(self, shards: int) -> PullHalf:
        half = self.policy.pull_half(shards)
        pulled = half.pulled

        def overheard(shard: int, version: int, now_s: float) -> list[WorkerCommand]:
            self.pulls.append((half, shard, version))
            return pulled(shard, version, now_s)

        half.pulled = overheard  # type: ignore[method-assign]
        return half


@pytest.mark.parametrize("policy", UNANSWERED, ids=str)
def test_nothing_overtakes_between_a_worker_and_a_shard(policy: Policy) -> None:
    heard = Overheard(policy)
    cluster = tg.Exponential(workers=4, mean_s=1.0, network=JITTERY)
    tg.schedule(heard, cluster, updates=200, shards=3)
    steps, versions = defaultdict(list), defaultdict(list)
    for half, arrival in heard.pushes:
        steps[id(half), arrival.worker].append(arrival.step)
    for puller, shard, version in heard.pulls:
        versions[id(puller), shard].append(version)
    assert len(steps) == len(versions) == 12
    for came in (*steps.values(), *versions.values()):
        assert len(came) > 20
        assert came == sorted(came)


def test_a_push_arrives_with_the_one_before_it_if_not_later() -> None:
    """Exactly: the running maximum of when each would arrive by itself."""
    cluster = tg.Exponential(workers=3, mean_s=1.0, network=JITTERY)
    made = tg.schedule(tg.Async(wait=False), cluster, updates=300, seed=5)
    messages = JITTERY.realise(5, workers=3, shards=1)
    held_up = 0
    for worker in range(3):
        rows = made.group_rows[made.worker[made.group_rows] == worker]
        alone_s = [made.end_s[r] + messages.push_s(worker, 0, i) for i, r in enumerate(rows)]
        came_s = made.group_time_s[np.isin(made.group_rows, rows)]
        assert came_s.tolist() == np.maximum.accumulate(alone_s).tolist()
        held_up += sum(b < a for a, b in pairwise(alone_s))
    assert held_up > 50


def test_who_comes_back_does_not_wait_for_what_was_on_its_way_before() -> None:
    """The versions of an earlier stay take an hour; those that follow the return do not."""
    slow_once = Network(latency_s=0.1, rare_probability=0.2, rare_delay_s=3600.0)
    away = (Absence(0, 5.0, 6.0),)
    cluster = tg.Constant(workers=2, step_s=1.0, network=slow_once, absences=away)
    for seed in range(40):
        messages = slow_once.realise(seed, workers=2, shards=1)
        rare = [messages.pull_s(0, 0, i) > 3600 for i in range(6)]
        if any(rare[:5]) and not rare[rare.index(True) + 1]:
            made = tg.schedule(tg.Async(), cluster, updates=30, seed=seed)
            mine = made.start_s[made.worker == 0]
            assert mine[mine >= 6.0][0] == pytest.approx(6.1)
            return
    pytest.fail("no such seed")


@dataclass(frozen=True)
class Asking(Overheard):
    """Its workers ask, after each gradient, for a version that never comes: 1,000 + step."""

    asked: list[tuple[int, int, int]] = field(default_factory=list)
    """Worker, step, and how many of its pushes the shard had had."""

    def push_half(self, workers: Iterable[int]) -> PushHalf:
        half = super().push_half(workers)

        def asked(worker: int, at_least: int, now_s: float) -> list[ShardCommand]:
            had = sum(h is half and arrival.worker == worker for h, arrival in self.pushes)
            self.asked.append((worker, at_least - 1000, had))
            return []

        half.requested = asked  # type: ignore[method-assign]
        return half

    def pull_half(self, shards: int) -> PullHalf:
        half = super().pull_half(shards)
        finished, steps = half.finished, count()

        def asking(now_s: float) -> list[WorkerCommand]:
            step = next(steps)
            return [*finished(now_s), *(Request(shard, 1000 + step) for shard in range(shards))]

        half.finished = asking  # type: ignore[method-assign]
        return half


def test_a_request_does_not_overtake_the_pushes_before_it() -> None:
    policy = Asking(tg.Async(wait=False))
    cluster = tg.Exponential(workers=3, mean_s=1.0, network=JITTERY)
    tg.schedule(policy, cluster, updates=200)
    assert len(policy.asked) > 100
    assert all(had >= step for _, step, had in policy.asked)
