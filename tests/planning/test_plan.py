"""Planning: speed-ups and splits against theory, updates needed, and the advice given."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from tardigrad.clusters import Constant, Exponential, Gamma, LogNormal, Network, Stragglers
from tardigrad.planning.advice import advise
from tardigrad.planning.measure import Setting, label
from tardigrad.planning.needed import Needed
from tardigrad.planning.speedup import expected_ratio, speedups
from tardigrad.planning.splits import best, estimated_splits, simulated_splits, splits_near
from tardigrad.policies import Async, Backup, Partial, Policy, PushHalf, Sync


def test_exponential_workers_gain_the_harmonic_number() -> None:
    """E[max of n] = 1 + 1/2 + … + 1/n."""
    for found in speedups(Exponential(workers=1), (1, 4, 16), gradients=20_000, runs=3):
        harmonic = sum(1 / i for i in range(1, found.workers + 1))
        assert found.ratio == pytest.approx(harmonic, rel=0.03)


def test_the_limit_and_the_schedules_agree() -> None:
    cluster = Gamma(workers=32)
    (found,) = speedups(cluster, (32,), gradients=50_000, runs=2)
    assert found.ratio == pytest.approx(expected_ratio(cluster, 1, 2000), rel=0.01)
    assert found.ratio == pytest.approx(1.22, abs=0.01)


def test_equal_constant_workers_gain_nothing() -> None:
    (found,) = speedups(Constant(workers=1), (8,), gradients=800, runs=1)
    assert found.ratio == 1.0


def test_updates_needed_go_along_powers() -> None:
    needed = Needed.of({50: 137_500, 100: 76_200})
    assert needed(50) == pytest.approx(137_500)
    assert needed(100) == pytest.approx(76_200)
    assert needed(np.sqrt(50 * 100)) == pytest.approx(np.sqrt(137_500 * 76_200))
    assert needed(200) == pytest.approx(76_200 * 76_200 / 137_500)
    assert Needed.of({50: 137_500, 100: 76_200}, linear=True)(75) == pytest.approx(106_850)
    assert Needed.of({10: 500})(20) == 250
    three = Needed.of({1: 1000, 10: 100, 100: 50})
    assert three(10) == pytest.approx(100)
    assert three(100) == pytest.approx(50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers,updates\n10,100\n20,x\n", "line 3: updates must be a number"),
        ("workers,updates\n10,100\n1.5,90\n", "line 3: workers must be a whole number"),
        ("workers,iterations\n10,100\n", "line 1: the header must name the column updates"),
        ("workers,updates\n10,100\n10,90\n", "given twice"),
        ("workers,updates\n0,100\n", "gradients per update"),
    ],
)
def test_broken_tables_of_updates_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "needed.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        Needed.load(path)


def test_one_straggler_makes_one_backup_best() -> None:
    cluster = Constant(workers=8, step_s=(*[1.0] * 7, 5.0))
    needed = Needed.of({8: 800.0})
    setting = Setting(cluster, gradients=240)
    estimated = estimated_splits(setting.collect_times_s(), needed)
    assert (best(estimated).workers, best(estimated).update_s) == (7, 1.0)
    by_backups = {s.backups: s for s in simulated_splits(setting, needed, (0, 1, 2))}
    assert by_backups[0].update_s == 5.0
    assert best(by_backups.values()).backups == 1
    plan = advise(cluster, needed, gradients=400)
    assert plan.policy == Backup(1)
    assert len(plan.speedups) == 1  # times belong to single workers, so sizes cannot change


def test_many_machines_are_split_in_steps() -> None:
    tried = splits_near(Setting(Constant(workers=400), gradients=400), Needed(), backups=10)
    assert [split.backups for split in tried] == [0, 2, 6, 10, 14, 18]


def test_equal_workers_need_no_backups() -> None:
    plan = advise(Constant(workers=6), gradients=300)
    assert plan.policy == Sync()
    assert "no backups pay off" in plan.why


def test_very_different_workers_make_asynchrony_worth_it() -> None:
    plan = advise(Gamma(workers=16, heterogeneous=True), gradients=2000)
    assert plan.policy == Async()
    assert "staleness" in plan.why
    assert advise(Gamma(workers=16, heterogeneous=True), gradients=2000, async_gain=9).policy != (
        Async()
    )


def test_every_policy_is_measured_also_over_a_network_and_shards() -> None:
    cluster = LogNormal(workers=8, network=Network(latency_s=0.1, jitter=0.5))
    plan = advise(cluster, gradients=2000, shards=3)
    kinds = {type(measured.policy).__name__ for measured in plan.measured}
    assert kinds == {
        "Async",
        "Sync",
        "Backup",
        "Partial",
        "Deadline",
        "Quorum",
        "SoftSync",
        "StaleSynchronous",
        "BoundedDelay",
    }
    by_kind = {type(measured.policy): measured.summary for measured in plan.measured}
    assert by_kind[Async].gradients_per_s > by_kind[Sync].gradients_per_s
    assert by_kind[Sync].delay.most == 0
    assert by_kind[Backup].dropped > 0
    assert 0 < by_kind[Async].waiting < by_kind[Sync].waiting < 1


def test_one_worker_is_told_so() -> None:
    assert advise(Constant(workers=1), gradients=100).policy == Sync()


def test_the_straggler_defaults_are_the_published_facts() -> None:
    times_s = Setting(Stragglers(workers=100), gradients=600_000).collect_times_s()
    assert (times_s[:, 97] < 2).mean() == pytest.approx(0.8, abs=0.025)
    assert (times_s[:, 99] < 2).mean() == pytest.approx(0.3, abs=0.025)
    means = times_s.mean(axis=0)
    assert means[0] == pytest.approx(1.4, abs=0.02)
    assert 1.7 < means[95] < 1.8
    needed = Needed.of({50: 137_500, 100: 76_200}, linear=True)
    assert best(estimated_splits(times_s, needed)).workers == pytest.approx(96, abs=1)


def test_labels_say_what_was_chosen() -> None:
    assert label(Async()) == "Async"
    assert label(Backup(4)) == "Backup(backups=4)"
    assert label(Partial(push=3, pull=0.9)) == "Partial(push=3, pull=0.9)"


def test_a_policy_is_called_by_its_class_and_what_was_chosen_for_it() -> None:
    class Own(Policy):
        def push_half(self, workers: Iterable[int]) -> PushHalf:
            return Async().push_half(workers)

    assert [label(p) for p in (Own(), Async(), Backup(4))] == ["Own", "Async", "Backup(backups=4)"]
