"""Malenia event by event, and beside a simulation of its own, written from the formulas."""

import heapq
import random

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.policies import Apply, Interrupt
from tests.policies.hand_fed_shard import Shard, dropped, releases
from tests.policies.schedule_differences import differing

RATE = 0.1


def bowls(bottoms: tuple[float, ...]) -> tg.FunctionTask:
    """f_i = (x − b_i)²/2, a worker each."""
    start = torch.ones(1, dtype=torch.float64)
    return tg.FunctionTask(start, lambda view, worker, step: view - bottoms[worker])


def reference(
    times_s: tuple[float, ...], bottoms: tuple[float, ...], batch: int, updates: int
) -> list[tuple[float, float]]:
    """(time, x) after each update, one number at a time."""
    n, x, version = len(times_s), 1.0, 0
    running = [(took, worker, 0, 1.0) for worker, took in enumerate(times_s)]
    heapq.heapify(running)
    given: list[list[float]] = [[] for _ in range(n)]
    trace: list[tuple[float, float]] = []
    while len(trace) < updates:
        now_s, worker, at, view = heapq.heappop(running)
        if at == version:  # else it is of an older point
            given[worker].append(view - bottoms[worker])
            everybody = all(given)
            if everybody and 1 / (sum(1 / len(g) for g in given) / n) >= batch / n - 1e-12:
                x -= RATE * sum(sum(g) / len(g) for g in given) / n
                version += 1
                given = [[] for _ in range(n)]
                trace.append((now_s, x))
        heapq.heappush(running, (now_s + times_s[worker], worker, version, x))
    return trace


def traced(
    times_s: tuple[float, ...], bottoms: tuple[float, ...], batch: int, updates: int
) -> None:
    expected = reference(times_s, bottoms, batch, updates)
    cluster = tg.Constant(len(times_s), times_s)
    rule, policy = tg.rules.sgd(RATE), tg.Malenia(batch)
    made = tg.schedule(policy, cluster, updates)
    assert made.group_time_s == pytest.approx([time_s for time_s, _ in expected], abs=1e-12)
    for groups, (_, x) in enumerate(expected, 1):
        one = tg.schedule(policy, cluster, groups)
        run = tg.execute(one, bowls(bottoms), rule, engine="exact")
        assert run.params.item() == pytest.approx(x, abs=1e-12)


def test_the_trace_of_three_speeds() -> None:
    """As published with interrupts: the slowest decides in both, and what the others were computing
    is dropped."""
    times_s, bottoms = (1.0, 2.3, 7.15), (0.0, 1.0, -2.0)
    for batch in (1, 3):
        (first_s, first), (second_s, second) = reference(times_s, bottoms, batch, 2)
        assert (first_s, second_s) == (7.15, 14.3)
        assert (first, second) == pytest.approx((0.866667, 0.746667), abs=6e-7)
        traced(times_s, bottoms, batch, 3)


def test_the_trace_of_three_speeds_with_interrupts() -> None:
    """The published one, and an update more: each is made when the slowest has come."""
    bottoms, cluster = (0.0, 1.0, -2.0), tg.Constant(3, (1.0, 2.3, 7.15))
    for updates, x in ((1, 0.866667), (2, 0.746667), (3, 0.638667)):
        made = tg.schedule(tg.Malenia(3, stop=True), cluster, updates)
        assert made.group_time_s == pytest.approx([7.15 * (k + 1) for k in range(updates)])
        run = tg.execute(made, bowls(bottoms), tg.rules.sgd(RATE), engine="exact")
        assert run.params.item() == pytest.approx(x, abs=6e-7)
    # The fast ones give 7 and 3 each time, because they start with the version.
    assert np.bincount(made.worker[made.group(1)]).tolist() == [7, 3, 1]
    assert set(made.reasons) == {"interrupted"}


def test_when_an_update_is_made_the_others_are_interrupted() -> None:
    shard = Shard(tg.Malenia(2, stop=True), 3)
    shard.push(0)
    shard.push(1)
    assert shard.leave(2) == [Apply((0, 1)), Interrupt(0, 1), Interrupt(1, 1)]


@pytest.mark.parametrize("seed", range(8))
def test_it_equals_its_reference(seed: int) -> None:
    draw = random.Random(seed)
    n = draw.randint(1, 6)
    times_s = tuple(draw.uniform(0.3, 4.0) for _ in range(n))
    bottoms = tuple(draw.uniform(-2, 2) for _ in range(n))
    traced(times_s, bottoms, draw.choice([1, n, 2 * n + 1, n * n + 2]), 5)


def test_event_by_event() -> None:
    shard = Shard(tg.Malenia(4), 2)  # S/n = 2: of (3, 2) the harmonic mean is 2.4, of (3, 1) 1.5
    assert shard.push(1) == releases(1)
    assert shard.push(1) == releases(1)
    assert shard.push(1) == releases(1)
    assert shard.push(0) == releases(0)
    assert shard.push(0) == [
        Apply((3, 4, 0, 1, 2), 1.0, (1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6)),
        *releases(0),
    ]
    assert shard.push(1) == dropped(5, "old version", 1)


def test_what_all_have_given_alike_is_the_mean() -> None:
    shard = Shard(tg.Malenia(3), 3)
    shard.push(1)
    shard.push(2)
    assert shard.push(0) == [Apply((2, 0, 1)), *releases(0)]


def test_equality_is_exact() -> None:
    """Of 49 workers with one each, Σ 1/B_i S = n² for S = 49, however 1/49 rounds."""
    for n in (3, 7, 49):
        shard = Shard(tg.Malenia(2 * n), n)
        answers = [shard.push(w) for _ in range(2) for w in range(n)]
        assert [isinstance(a[0], Apply) for a in answers] == [False] * (2 * n - 1) + [True]


def test_who_left_is_not_waited_for_but_counts() -> None:
    shard = Shard(tg.Malenia(4), 3)
    shard.push(0)
    shard.push(2)
    shard.push(2)
    assert shard.leave(0) == []  # of the two present one has given nothing
    assert shard.push(1) == releases(1)  # (1, 2): 4/3, of 2
    assert shard.push(1) == [
        Apply((0, 3, 4, 1, 2), 1.0, (1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6)),
        *releases(1),
    ]


def test_a_leave_may_complete_an_update() -> None:
    shard = Shard(tg.Malenia(2), 3)
    shard.push(0)
    shard.push(1)
    assert shard.leave(2) == [Apply((0, 1))]


def test_it_goes_on_with_less_where_all_wait_for_it() -> None:
    shard = Shard(tg.Malenia(9), 2)
    assert shard.push(0) == releases(0)
    assert shard.half.on_request(0, 1, 0.0) == []
    assert shard.half.on_request(1, 1, 0.0) == [Apply((0,)), *releases(0, 1)]


def test_with_one_worker_it_is_rennala() -> None:
    mine, theirs = (tg.schedule(p, tg.Constant(1, 1.7), 20) for p in (tg.Malenia(4), tg.Rennala(4)))
    assert differing(mine, theirs) == []


@pytest.mark.parametrize("name", ["dana", "dana_ga"])
def test_dana_is_refused_by_name_before_anything_runs(name: str) -> None:
    with pytest.raises(ValueError, match=r"Malenia lets some gradients .* Dana keeps numbers"):
        tg.simulate(
            bowls((0.0, 1.0)),
            tg.rules.RULES[name](RATE),
            policy=tg.RampUp(tg.Malenia(4), updates=5),
            cluster=tg.Gamma(workers=2),
            updates=3,
        )


def test_a_bad_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="batch must be a whole number of at least 1"):
        tg.Malenia(0)


def test_a_worker_that_may_never_come_is_not_waited_for() -> None:
    richer = tg.Dispatcher(3, drawn_factor=1.1)
    with pytest.raises(ValueError, match=r"Malenia needs a gradient of every worker.* ≤ 1"):
        tg.schedule(tg.Malenia(3), richer, updates=5)
    assert tg.schedule(tg.Malenia(3), tg.Dispatcher(3, drawn_factor=0.9), updates=5).updates == 5
