"""Workers that leave and come back sooner than their messages travel: against a little simulator of
its own, and what must hold for every policy, link and number of shards."""

from heapq import heappop, heappush
from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Absence, Constant, Network, Outage
from tardigrad.links import Link
from tardigrad.policies import Policy
from tardigrad.scheduling.validate import validate

STEP_S = (1.0, 1.37, 1.71)


def little(
    kind: str, latency_s: float, absences: list[tuple[int, float, float]], updates: int
) -> tuple[list[int], list[float], int]:
    """(gradients applied per worker, times of the updates, gradients dropped), with one shard."""
    heap: list[tuple[float, int, tuple[Any, ...]]] = []
    sequence, everyone = count(), range(len(STEP_S))
    stay, here = [0 for _ in everyone], set(everyone)
    times: list[float] = []
    applied, dropped = [0 for _ in everyone], 0
    group: dict[int, int] = {}  # the stay of each worker whose gradient has come for this version

    def after(now_s: float, delay_s: float, *event: Any) -> None:
        heappush(heap, (now_s + delay_s, next(sequence), event))

    for worker in everyone:
        after(0.0, STEP_S[worker], "done", worker, 0, 0)
    for worker, leaves_s, returns_s in absences:
        after(0.0, leaves_s, "leave", worker)
        after(0.0, returns_s, "return", worker)
    while len(times) < updates:
        now_s, _, (what, worker, *more) = heappop(heap)
        there = worker in here and more[:1] == [stay[worker]]
        if what == "leave":
            here.discard(worker)
        elif what == "return":
            here.add(worker)
            stay[worker] += 1
            after(now_s, latency_s, "answer", worker, stay[worker], len(times))
        elif what == "answer" and there:
            after(now_s, STEP_S[worker], "done", worker, *more)
        elif what == "done" and there:
            after(now_s, latency_s, "push", worker, *more)
            if kind == "no wait":
                after(now_s, STEP_S[worker], "done", worker, *more)
        elif what == "push" and kind == "sync" and more[1] < len(times):
            dropped += 1
            if there:
                after(now_s, latency_s, "answer", worker, stay[worker], len(times))
        elif what == "push":
            dropped += worker in group
            group[worker] = max(more[0], group.get(worker, 0))
        waiting = {w for w in group if w in here and group[w] == stay[w]}
        if group and (kind != "sync" or (waiting == here and here)):
            for w in group:
                applied[w] += 1
            times.append(now_s)
            if kind != "no wait":
                for w in waiting:
                    after(now_s, latency_s, "answer", w, stay[w], len(times))
            group = {}
    return applied, times, dropped


ABSENCES = {
    "none": [],
    "short": [(0, 1.2, 1.3)],
    "twice": [(0, 1.2, 1.3), (0, 1.5, 1.6), (2, 9.05, 9.4)],
    "often": [(w, 2.03 + 7.7 * i + w, 2.51 + 7.7 * i + w) for i in range(5) for w in range(3)],
    "long": [(1, 6.2, 31.7), (0, 6.4, 6.9)],
}
KINDS = {"async": tg.Async(), "sync": tg.Sync(), "no wait": tg.Async(wait=False)}


@pytest.mark.parametrize("absences", ABSENCES)
@pytest.mark.parametrize("latency_s", [0.01, 0.6, 2.93, 11.3])
@pytest.mark.parametrize("kind", KINDS)
def test_as_in_a_simulator_of_thirty_lines(kind: str, latency_s: float, absences: str) -> None:
    gone = tuple(Absence(*one) for one in ABSENCES[absences])
    cluster = Constant(
        workers=3, step_s=STEP_S, network=Network(latency_s=latency_s), absences=gone
    )
    made = tg.schedule(KINDS[kind], cluster, updates=90)
    validate(made)
    applied, times, dropped = little(kind, latency_s, ABSENCES[absences], 90)
    assert made.applied.tolist() == applied
    assert np.allclose(made.group_time_s, times, rtol=0, atol=1e-9)
    assert len(made.drop_row) == dropped


LATENCY_S = 30.0
FLICKER = tuple(
    Absence(worker, start_s, start_s + (2.0, 40.0, 7.0)[turn % 3])
    for worker in range(5)
    for turn in range(20)
    for start_s in [110.0 + 417.0 * turn + 19.0 * worker]
)
ANSWERING: list[Policy] = [
    tg.Async(),
    tg.Sync(),
    tg.Backup(1),
    tg.Deadline(150.0),
    tg.SoftSync(2),
    tg.SoftSync(2, wait=False),
    tg.StaleSynchronous(0),
    tg.StaleSynchronous(2),
    tg.SoftSync(size=2, wait=False),
    tg.BoundedDelay(4),
    tg.Ringmaster(4),
    tg.Rennala(3),
    tg.Ringmaster(4, stop=True),
    tg.Rennala(3, stop=True),
    tg.RampUp(tg.Ringmaster(3, stop=True), updates=20),
    tg.Malenia(6),
    tg.Quorum(3, grace_s=20.0),
    tg.Quorum(3, grace_s=20.0, late="next"),
    tg.PartialPull(tg.Async(), pull=0.5),
    tg.PartialPull(tg.Sync(), pull=0.5),
    tg.RampUp(tg.Async(), updates=20),
    tg.RampUp(tg.Sync(), updates=20),
]
OTHERS: list[Policy] = [
    tg.Async(wait=False),
    tg.RampUp(tg.Async(wait=False), updates=20),
    tg.Partial(push=3, pull=0.5),
    tg.Partial(push=3, pull=0.5, push_timeout_s=20.0, pull_timeout_s=10.0),
]
LINKS = (tg.Full(), tg.Every(push=2, pull=3), tg.Every(pull=2))


def flickering(policy: Policy, link: Link, shards: int, seed: int, jitter: float) -> tg.Schedule:
    network = Network(latency_s=LATENCY_S, jitter=jitter)
    cluster = tg.Gamma(workers=5, network=network, absences=FLICKER)
    return tg.schedule(policy, cluster, updates=60, shards=shards, seed=seed, link=link)


def stay_of(made: tg.Schedule, row: int) -> int:
    """How often its worker had come back when this gradient was started."""
    mine = (made.member_worker == made.worker[row]) & (made.member_joined == 1)
    return int((made.member_time_s[mine] <= made.start_s[row]).sum())


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("policy", [*ANSWERING, *OTHERS], ids=str)
def test_every_policy_and_link_with_workers_that_come_and_go(policy: Policy, shards: int) -> None:
    together = 0
    for seed, (link, jitter) in enumerate((link, j) for link in LINKS for j in (0.0, 2.0)):
        if link.withholds_pushes and not policy.asynchronous:
            continue
        if policy.interrupts and not isinstance(link, tg.Full):
            continue
        made = flickering(policy, link, shards, seed, jitter)
        validate(made)
        assert made.updates == 60  # nobody hangs
        stays = np.array([stay_of(made, row) for row in range(made.rows)])
        for group in range(made.groups):
            rows = made.group(group)
            of_a_stay = set(zip(made.worker[rows].tolist(), stays[rows].tolist(), strict=True))
            assert len(of_a_stay) == len(set(made.worker[rows].tolist()))
        for worker in range(5):
            rows = np.flatnonzero(made.worker == worker)
            start_s, end_s = made.start_s[rows][1:], made.end_s[rows][:-1]
            same = stays[rows][1:] == stays[rows][:-1]
            together += int(same.sum())
            assert not (start_s < end_s).any()
            if policy in ANSWERING:  # no start without an answer to the gradient before it
                assert (start_s[same] >= end_s[same] + 2 * LATENCY_S * (jitter == 0)).all()
            elif not policy.needs_clock and policy.asynchronous:
                assert (start_s[same] == end_s[same]).all()  # no waiting at all
    assert together > 50


OUTAGE = Outage(shard=0, stops_s=10.0, returns_s=20.0)


def away_while_the_shard_is_stopped(
    jitter: float, seed: int, link: tg.Every | None = None
) -> tg.Schedule:
    """Worker 1 leaves and is back before the shard hears of either."""
    network = Network(latency_s=0.3, jitter=jitter, outages=(OUTAGE,))
    absences = (Absence(1, leaves_s=11.0, returns_s=12.0),)
    cluster = Constant(workers=3, step_s=1.0, network=network, absences=absences)
    return tg.schedule(tg.Async(), cluster, updates=300, seed=seed, link=link)


@pytest.mark.parametrize("seed", range(12))
def test_a_shard_that_was_stopped_answers_the_stay_it_knows(seed: int) -> None:
    """An old push, answered after the return, must not be taken for the return's own answer."""
    made = away_while_the_shard_is_stopped(jitter=6.0, seed=seed)
    version_of = {int(row): k for k, row in enumerate(made.group_rows, start=1)}
    for worker in range(3):
        rows = np.nonzero(made.worker == worker)[0].tolist()
        for before, after in pairwise(rows):
            returned = worker == 1 and made.end_s[before] < 12.0 <= made.start_s[after]
            if not returned and before in version_of:
                assert made.read[after, 0] >= version_of[before]


@pytest.mark.parametrize("seed", range(12))
def test_who_came_back_gets_the_parameters_whole(seed: int) -> None:
    """Also where the answer to an earlier stay's push goes out before."""
    made = away_while_the_shard_is_stopped(jitter=6.0, seed=seed, link=tg.Every(pull=7))
    first = np.nonzero((made.worker == 1) & (made.start_s >= 12.0))[0][0]
    assert made.read[first, 0] >= (made.group_time_s < 20.0).sum()


def test_who_goes_again_before_the_shard_heard_of_its_return_has_left_once() -> None:
    """The shard never knew of the second stay, and a ramp's order has no place for it."""
    network = Network(latency_s=0.3, outages=(OUTAGE,))
    absences = (
        Absence(1, leaves_s=11.0, returns_s=12.0),
        Absence(1, leaves_s=13.0, returns_s=30.0),
    )
    cluster = Constant(workers=3, step_s=1.0, network=network, absences=absences)
    made = tg.schedule(tg.RampUp(tg.Async(), updates=20), cluster, updates=200)
    validate(made)
    assert (made.worker[made.start_s > 30.0] == 1).any()
