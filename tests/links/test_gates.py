"""What links let through, decision by decision, and what they refuse."""

import math
from collections.abc import Callable

import pytest

import tardigrad as tg
from tardigrad.core.keys import key, uniform
from tardigrad.links.budget import frequencies


def test_every_sends_the_first_push_and_takes_every_kth_reply() -> None:
    gate = tg.Every(push=3, pull=2).realise(0, [0])
    assert gate is not None
    assert [gate.push(0, 0, [1.0]) for _ in range(7)] == [True, False, False] * 2 + [True]
    assert [gate.pull(0, 0, [1.0]) for _ in range(6)] == [False, True] * 3
    assert gate.push(1, 0, [1.0])  # every pair counts for itself


def test_full_has_nothing_to_decide() -> None:
    assert tg.Full().realise(0, [0]) is None


def test_bandwidth_aware_compares_keyed_draws_with_equation_9() -> None:
    gate = tg.BandwidthAware(c_push=0.5, c_pull=2.0, eps=0.01).realise(7, [0, 0])
    heard = [[0.3, 1.0], [1.0, 0.02], [0.1, 5.0]]
    for position, deviations in enumerate(heard):
        for shard in (0, 1):
            v = deviations[shard]
            r = uniform(key(7, "link push", 4, shard), position)
            assert gate.push(4, shard, deviations) == (r < 1 / (1 + 0.5 / (v + 0.01)))
            r = uniform(key(7, "link pull", 4, shard), position)
            assert gate.pull(4, shard, deviations) == (r < 1 / (1 + 2.0 / (v + 0.01)))


def test_bandwidth_aware_sends_at_the_rate_of_equation_9() -> None:
    gate = tg.BandwidthAware(c_pull=0.9, eps=1e-4).realise(0, [0])
    draws = 20_000
    share = sum(gate.pull(0, 0, [0.1]) for _ in range(draws)) / draws
    p = 1 / (1 + 0.9 / 0.1001)
    assert abs(share - p) < 4 * (p * (1 - p) / draws) ** 0.5


def test_c_of_zero_always_sends() -> None:
    gate = tg.BandwidthAware().realise(3, [0])
    assert all(gate.push(0, 0, [0.0]) and gate.pull(0, 0, [0.0]) for _ in range(2000))


def test_frequencies_spend_the_budget_in_proportion_to_the_deviation() -> None:
    sizes, deviation = [100, 10, 40], [0.1, 0.4, 0.2]
    got = frequencies(deviation, sizes, budget=15.0)
    assert sum(f * b for f, b in zip(got, sizes, strict=True)) == pytest.approx(15)
    assert got[0] / got[2] == pytest.approx(0.5)
    assert got[1] / got[2] == pytest.approx(2)


def test_frequencies_fill_up_at_one_and_hand_the_rest_on() -> None:
    sizes, deviation = [100, 10, 40], [0.1, 0.4, 0.2]
    got = frequencies(deviation, sizes, budget=60.0)
    assert got[1] == 1
    assert got[0] / got[2] == pytest.approx(0.5)
    assert sum(f * b for f, b in zip(got, sizes, strict=True)) == pytest.approx(60)
    assert frequencies(deviation, sizes, budget=1000.0) == [1, 1, 1]


@pytest.mark.parametrize("deviation", [[1.0, 0.0], [1e38, 1e-12], [math.inf, 1.0]])
def test_a_shard_that_does_not_deviate_is_sent_all_the_same(deviation: list[float]) -> None:
    """Beside one that does; else its pushes would all be held back, for ever."""
    gate = tg.Budget(50, direction="push").realise(0, [100, 100])
    sent = sum(gate.push(0, 1, deviation) for _ in range(4000))
    assert sent in (10, 11)  # a hundredth of 50 / 200, each time


def test_frequencies_are_even_where_nothing_deviates() -> None:
    assert frequencies([0.0, 0.0], [30, 10], budget=10.0) == [0.25, 0.25]


def test_a_budget_is_kept_to_within_one_slice_per_pair() -> None:
    sizes = [400, 40, 80]
    link = tg.Budget(bytes_per_update=130)
    gate = link.realise(0, sizes)
    for worker in range(3):
        due, spent = [0.0] * 3, [0.0] * 3
        for update in range(500):
            deviation = [0.1 + 0.001 * update, 0.5, 0.3]
            for shard in range(3):
                due[shard] += frequencies(deviation, sizes, 130.0)[shard]
                spent[shard] += gate.pull(worker, shard, deviation)
                assert abs(spent[shard] - due[shard]) <= 1
        total = sum(s * b for s, b in zip(spent, sizes, strict=True))
        assert total == pytest.approx(130 * 500, abs=sum(sizes))


def test_a_budget_leaves_the_other_direction_whole_and_splits_both() -> None:
    pulls = tg.Budget(10).realise(0, [100])
    assert all(pulls.push(0, 0, [1.0]) for _ in range(50))
    both = tg.Budget(50, direction="both").realise(0, [100])
    assert sum(both.push(0, 0, [1.0]) for _ in range(400)) == pytest.approx(100, abs=1)
    assert sum(both.pull(0, 0, [1.0]) for _ in range(400)) == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: tg.Every(push=0), "push"),
        (lambda: tg.Every(pull=0), "pull"),
        (lambda: tg.Every(pull=1.5), "pull"),  # type: ignore[arg-type]
        (lambda: tg.BandwidthAware(c_push=-1), "c_push"),
        (lambda: tg.BandwidthAware(c_pull=-0.1), "c_pull"),
        (lambda: tg.BandwidthAware(c_pull=float("nan")), "c_pull"),
        (lambda: tg.BandwidthAware(eps=0), "eps"),
        (lambda: tg.BandwidthAware(on_drop="forget"), "on_drop"),  # type: ignore[arg-type]
        (lambda: tg.Budget(0), "bytes_per_update"),
        (lambda: tg.Budget(-5), "bytes_per_update"),
        (lambda: tg.Budget(5, direction="up"), "direction"),  # type: ignore[arg-type]
    ],
)
def test_bad_values_are_refused_by_name(make: Callable[[], object], names: str) -> None:
    with pytest.raises(ValueError, match=names):
        make()
