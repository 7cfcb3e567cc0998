"""Every number that a plan tells, against a little simulator that shares no code with it."""

import re
import statistics
from dataclasses import dataclass

import numpy as np
import pytest
from matplotlib.figure import Figure

from tardigrad.clusters import (
    Absence,
    Constant,
    Gamma,
    LogNormal,
    Network,
    SlowShard,
    TimedCluster,
)
from tardigrad.planning.advice import Plan, advise
from tardigrad.planning.figures import draw_collect_means, draw_speedups, draw_splits
from tardigrad.planning.tables import collect_table, policies_table, speedup_table, splits_table
from tardigrad.policies import Async, Backup, Deadline, Policy, Sync
from tests.planning.little_simulator import Done, run

UNEVEN = (1.0, 1.013, 1.031, 1.057, 1.083, 1.117, 1.171, 1.719)
"""No two workers' multiples meet soon."""


@dataclass(frozen=True)
class Case:
    """A cluster; travel_s(shard) by hand where the network is not random."""

    cluster: TimedCluster
    shards: int = 1
    travel_s: tuple[float, ...] | None = None


def absences(*triples: tuple[int, float, float | None]) -> tuple[Absence, ...]:
    return tuple(Absence(*triple) for triple in triples)


CASES = {
    "equal workers, bandwidth, 4 shards": Case(
        Constant(8, network=Network(bandwidth_bytes_s=1e6, model_bytes=4e6)), 4, (1.0,) * 4
    ),
    "a slow shard 3": Case(
        Constant(8, UNEVEN, network=Network(latency_s=0.1, slow_shards=(SlowShard(3, 3.0),))),
        4,
        (0.1, 0.1, 0.1, 0.1 * 3.0),
    ),
    "long latency": Case(Constant(8, UNEVEN, network=Network(latency_s=2.0)), 1, (2.0,)),
    "a step far shorter than the way": Case(
        LogNormal(12, mean_s=0.2, network=Network(latency_s=1.0)), 2, (1.0, 1.0)
    ),
    "half of the workers leave": Case(
        Gamma(
            8, mean_s=1.0, absences=absences((0, 5.5, None), *((w, 0.7, None) for w in (1, 2, 3)))
        )
    ),
    "absent from time 0": Case(Gamma(8, mean_s=1.0, absences=absences((0, 0.0, None)))),
    "absent from time 0, and back": Case(
        Gamma(
            6,
            mean_s=1.0,
            heterogeneous=True,
            absences=absences((0, 0.0, 30.3), (4, 0.0, 7.77), (2, 11.1, 19.9), (2, 40.4, None)),
        ),
    ),
    "jitter, 3 shards, absences": Case(
        Gamma(
            8,
            mean_s=1.0,
            network=Network(latency_s=0.2, jitter=0.5, rare_probability=0.02, rare_delay_s=3.0),
            absences=absences((0, 0.0, None), (1, 12.3, 47.1), (2, 33.3, None)),
        ),
        3,
    ),
}


@pytest.fixture(scope="module", params=list(CASES.values()), ids=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param
    return made


@pytest.fixture(scope="module")
def plan(case: Case) -> Plan:
    return advise(case.cluster, gradients=4000, shards=case.shards, seed=3)


def little(case: Case, plan: Plan, policy: Policy) -> Done:
    """The same policy, for as many updates, by the little simulator."""
    cluster, shards = case.cluster, case.shards
    steps_s = cluster.realise(3).step_s(np.arange(cluster.workers)[:, None], np.arange(4000))
    push_s = pull_s = lambda worker, shard, sequence: (case.travel_s or (0.0,) * shards)[shard]
    if cluster.network is not None and case.travel_s is None:  # random: what was drawn
        drawn = cluster.network.realise(3, cluster.workers, shards)
        push_s, pull_s = drawn.push_s, drawn.pull_s
    return run(
        type(policy).__name__.lower(),
        cluster.workers,
        plan.setting.schedule(policy).updates,
        lambda worker, step: float(steps_s[worker, step]),
        shards,
        push_s,
        pull_s,
        [(a.worker, a.leaves_s, a.returns_s) for a in cluster.absences],
        spare=policy.backups if isinstance(policy, Backup) else 0,
        timeout_s=policy.timeout_s if isinstance(policy, Deadline) else 0.0,
    )


def test_the_table_of_policies(case: Case, plan: Plan) -> None:
    rows = {row[0]: row[1:] for row in policies_table(plan).rows}
    for measured in plan.measured:
        if not isinstance(measured.policy, Async | Sync | Backup | Deadline):
            continue
        per_s, waiting, delay, most, dropped = rows[measured.label]
        true = little(case, plan, measured.policy)
        assert per_s == pytest.approx(true.gradients_per_s, rel=1e-9), measured.label
        assert waiting == f"{true.waiting:.1%}", measured.label
        assert delay == pytest.approx(np.mean(true.delays), rel=1e-9), measured.label
        assert most == max(true.delays), measured.label
        assert dropped == f"{true.dropped_share:.1%}", measured.label
        assert true.applied / case.shards >= 0.9 * plan.setting.enough


def test_splits_and_what_is_recommended(case: Case, plan: Plan) -> None:
    found = {}
    for split, row in zip(plan.simulated, splits_table(plan).rows, strict=True):
        true = little(case, plan, split.policy)
        update_s = true.lasted_s / true.updates
        gradients = true.applied / case.shards / true.updates
        found[split.backups] = update_s * 10_000 / gradients
        assert row[1:3] == pytest.approx((gradients, update_s), rel=1e-9)
        assert row[4] == pytest.approx(10_000 / gradients, rel=1e-9)
    least = min(found.values())
    relative = [row[5] for row in splits_table(plan).rows]
    assert relative == pytest.approx([total / least for total in found.values()], rel=1e-9)
    chosen = min(found, key=lambda backups: found[backups])
    waiting = little(case, plan, Backup(chosen) if chosen else Sync()).gradients_per_s
    free = little(case, plan, Async()).gradients_per_s
    (told,) = re.findall(r"apply (?:only )?([\d.]+) times", plan.why)
    assert told == f"{free / waiting:.2f}"
    slower = Backup(chosen) if chosen else Sync()
    assert plan.policy == (Async() if free >= 1.5 * waiting else slower)


def test_when_the_kth_gradient_comes(case: Case, plan: Plan) -> None:
    true = little(case, plan, Sync())
    first = 0 if case.cluster.network is None else 1
    last = plan.setting.schedule(Sync()).updates - 1
    rounds = [
        sorted(came) for (_, v), came in true.collected_s.items() if first <= v <= last and came
    ]
    shown = collect_table(plan)
    everyone = all(len(came) == case.cluster.workers for came in rounds)
    assert ("versions" in shown.columns) is not everyone
    for k, *figures in shown.rows:
        assert isinstance(k, int)
        took = [came[k - 1] for came in rounds if len(came) >= k]
        expected = (np.mean(took), np.median(took), np.quantile(took, 0.95), max(took))
        assert figures[:4] == pytest.approx(expected, rel=1e-9)
        assert everyone or figures[4] == f"{len(took) / len(rounds):.1%}"
    by_order = {split.backups: split.update_s for split in plan.estimated}
    for backups, estimate in by_order.items():
        ends = [came[max(1, len(came) - backups) - 1] for came in rounds]
        assert estimate == pytest.approx(np.mean(ends), rel=1e-9)
    (deadline,) = [m.policy for m in plan.measured if isinstance(m.policy, Deadline)]
    every = [took for came in rounds for took in came]
    median = statistics.median(every)
    deviation = statistics.median(abs(took - median) for took in every)
    assert deadline.timeout_s == pytest.approx(median + 5 * deviation, rel=1e-8)


def test_what_asynchrony_brings(case: Case, plan: Plan) -> None:
    rates = [little(case, plan, policy).gradients_per_s for policy in (Async(), Sync())]
    expected = (case.cluster.workers, *rates, rates[0] / rates[1])
    assert speedup_table(plan).rows[-1] == pytest.approx(expected, rel=1e-9)


def test_pictures_show_what_tables_say(case: Case, plan: Plan) -> None:
    axes = Figure().subplots(1, 3)
    draw_collect_means(axes[0], plan.times_s)
    mean, median = (dict(zip(*line.get_data(), strict=True)) for line in axes[0].lines)
    for k, *figures in collect_table(plan).rows:
        assert (mean[k], median[k]) == pytest.approx(figures[:2], rel=1e-12)
    draw_splits(axes[1], {"order statistics": plan.estimated}, plan.simulated)
    totals = axes[1].lines[-1].get_ydata()
    relative = [row[5] for row in splits_table(plan).rows]
    assert totals / min(totals) == pytest.approx(relative, rel=1e-12)
    draw_speedups(axes[2], {"": plan.speedups})
    drawn = axes[2].lines[0].get_ydata()
    assert list(drawn) == [row[3] for row in speedup_table(plan).rows]


def test_a_deadline_is_not_just_before_what_it_is_for() -> None:
    """Two are early and six come together, at sums that are rounded; nobody is to be late."""
    network = Network(latency_s=0.1)
    plan = advise(Constant(8, (0.05, 0.05, *[0.1] * 6), network=network), gradients=2000)
    (deadline,) = [m for m in plan.measured if isinstance(m.policy, Deadline)]
    assert plan.policy == Sync()
    assert deadline.summary.dropped == 0
    assert deadline.summary.update_s == pytest.approx(0.3, rel=0.01)
