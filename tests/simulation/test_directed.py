"""Faults at chosen moments: each of these once broke a run."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tardigrad.protocol.coordinator import MembershipChange
from tardigrad.protocol.run_processes import RunFailed
from tests.simulation.checks import check
from tests.simulation.faults import Fault, Faults
from tests.simulation.scenarios import Scenario, live, make_cluster, make_coordinator, run
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.simulated_network import Weather
from tests.simulation.simulated_processes import SimulatedProcess


def run_well(scenario: Scenario) -> SimulatedCluster:
    outcome = run(scenario)
    assert not outcome.error, "\n".join([outcome.error, *outcome.story])
    missed = len(scenario.faults) - sum(outcome.happened.values())
    assert not missed, "\n".join([f"{missed} faults did not come about", *outcome.story])
    return outcome.cluster


def run_with(
    scenario: Scenario, prepare: Callable[[SimulatedCluster, Faults], None]
) -> SimulatedCluster:
    cluster = make_cluster(scenario)
    faults = Faults(cluster, lambda: make_coordinator(scenario, scenario.updates))
    prepare(cluster, faults)
    live(cluster, faults.make)
    check(cluster)
    return cluster


def test_a_worker_dies_after_a_gradient_that_is_not_finite() -> None:
    """Such a push is not answered by a release: the next life begins at the last one's."""
    after_the_third = Fault("kill", "sends PushHeader", nth=6, target="worker", delay_s=0.1)
    run_well(Scenario(0, workers=1, mean_step_s=1.0, not_finite=True, faults=[after_the_third]))


def test_a_worker_dies_while_it_pushes_a_gradient_that_is_not_finite() -> None:
    """One shard has it; it is completed at the other, where no release follows either."""
    between_shards = Fault("kill", "sends PushHeader", nth=6)
    run_well(Scenario(0, workers=1, mean_step_s=1.0, not_finite=True, faults=[between_shards]))


def test_a_removed_worker_dies_when_a_shard_does_before_releases_go_on() -> None:
    """It has left for all shards: it is not brought back, and no shard is asked about it."""
    run_well(
        Scenario(
            0,
            workers=3,
            changes=[MembershipChange(3, remove=0)],
            faults=[
                Fault("kill", "has done LeaveWorker", 2, "worker 0"),
                Fault("kill", "asks HoldReleases", 2, "shard 0"),
            ],
        )
    )


def test_a_host_loses_power_after_its_shard_was_replaced_elsewhere() -> None:
    """What counts of the old log is synced, though logs are not: the new one goes on from it."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        cluster.places |= {"shard 0": "host-0", "shard 1": "host-1"}
        cluster.places |= {"worker 0": "host-1", "worker 1": "host-1"}

        def move(process: SimulatedProcess) -> None:
            cluster.places["shard 0"] = "host-2"

        cluster.moments.plan("version", 4, move)
        faults.plan(Fault("kill", "version", 5, "shard 0"))
        cluster.moments.plan("version", 9, lambda process: cluster.lose_power("host-0"))

    run_with(Scenario(0, updates=16, sync_log=False), prepare)


def test_a_join_survives_the_loss_of_power() -> None:
    """What a driver has told is synced, though logs are not: it does not tell it twice."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        cluster.places["shard 0"] = "host-0"
        faults.plan(Fault("power", "has done HoldReleases", 2, "shard 0"))

    scenario = Scenario(0, shards=1, sync_log=False, changes=[MembershipChange(3)])
    run_with(scenario, prepare)


def test_power_that_is_lost_at_the_very_end_takes_nothing() -> None:
    """The driver has the numbers, and no one could make the logs' ends again."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        cluster.places |= {"shard 0": "host-0", "shard 1": "host-0"}
        cluster.moments.plan("finishes", 1, lambda process: cluster.lose_power("host-0"))

    run_with(Scenario(0, updates=9, sync_log=False), prepare)


def test_versions_that_power_loss_took_are_evaluated_again() -> None:
    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        cluster.places |= {"shard 0": "host-0", "shard 1": "host-1"}
        cluster.moments.plan("version", 12, lambda process: cluster.lose_power("host-0"))

    cluster = run_with(
        Scenario(0, updates=16, sync_log=False, snapshot_every=1, mean_step_s=1.0), prepare
    )
    assert cluster.power_lost


@pytest.mark.parametrize("moment", ["is made", "has done ReinstateShard"])
def test_a_shard_that_dies_again_and_again_ends_the_driver(moment: str) -> None:
    """With the last error; and the run can be resumed once the reason is gone."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        def die(process: SimulatedProcess) -> None:
            failed = any(isinstance(driver.error, RunFailed) for driver in cluster.drivers)
            if "shard 1" in process.name and not failed and cluster.time.now_s > 0.5:
                process.kill("its memory is broken")

        cluster.moments.always(moment, die)
        faults.plan(Fault("kill", "version", 4, "shard 1"))

    cluster = run_with(Scenario(0), prepare)
    errors = [str(driver.error) for driver in cluster.drivers if driver.error]
    assert len(errors) == 1, errors
    assert "shard 1 died 6 times" in errors[0]
    assert "its memory is broken" in errors[0]


def test_a_worker_that_dies_whenever_it_begins_ends_the_driver() -> None:
    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        def die(process: SimulatedProcess) -> None:
            failed = any(isinstance(driver.error, RunFailed) for driver in cluster.drivers)
            if not failed and cluster.time.now_s > 1.0:
                process.kill("it has no GPU")

        cluster.moments.always("has done BeginWork", die)
        faults.plan(Fault("kill", "version", 4, "worker 0"))

    cluster = run_with(Scenario(0, workers=1, mean_step_s=1.0), prepare)
    errors = [str(driver.error) for driver in cluster.drivers if driver.error]
    assert len(errors) == 1, errors
    assert "worker 0 died 6 times" in errors[0]
    assert "it has no GPU" in errors[0]


def test_a_deposed_driver_makes_a_cut_of_the_same_number() -> None:
    """It was paused after it had chosen the number; its shards write theirs over nobody's."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        faults.plan(Fault("second driver", "does NextCut", 1))
        faults.plan(Fault("pause", "does NextCut", 1, "it", seconds=4.0))
        faults.plan(Fault("kill", "version", 13, "shard"))

    run_with(Scenario(0, cut_every=4, updates=40, workers=1, mean_step_s=0.3), prepare)


def test_the_disk_is_full_for_a_cut_only() -> None:
    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        faults.plan(Fault("full disk", "replaces", 1, "it", seconds=2.0))

    cluster = run_with(Scenario(0, cut_every=4), prepare)
    assert any("its part of a cut cannot be written" in line for line in cluster.time.story)


@pytest.mark.parametrize(("policy", "mean_step_s"), [("async", 1.0), ("bounded_delay", 0.1)])
def test_a_shard_is_replaced_twice_before_workers_know_of_it(
    policy: str, mean_step_s: float
) -> None:
    """Nobody was told where the first of the two began: until all are, it hears no worker."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        cluster.places |= {"shard 0": "host-0", "shard 1": "host-0"}
        cluster.places |= {f"worker {worker}": "host-1" for worker in range(4)}

        def lose_sight(process: SimulatedProcess) -> None:
            """The driver reaches no shard for a while; workers do."""
            cluster.network.cut_off({"head"}, set(), 60.0, both_ways=True)

        cluster.moments.plan("version", 9, lambda process: cluster.lose_power("host-0"))
        cluster.moments.plan("does MakeShards", 2, lose_sight)

    for seed in range(5):
        scenario = Scenario(seed, workers=4, updates=16, sync_log=False)
        cluster = run_with(replace(scenario, policy=policy, mean_step_s=mean_step_s), prepare)
        assert cluster.power_lost


def test_a_second_driver_reads_the_logs_one_after_the_other() -> None:
    """A push may be in the one read last whose row is not in the one of shard 0: it is void."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        faults.plan(Fault("second driver", "version", 8))

    for seed in range(6):
        scenario = Scenario(seed, workers=4, shards=3, updates=20, mean_step_s=0.02)
        run_with(replace(scenario, policy="no_waiting"), prepare)


def test_workers_that_wait_for_nothing_go_on_while_one_joins() -> None:
    """Rows are given while releases are held, so a push may be in a log that has not the join."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        cluster.places |= {"shard 0": "host-0", "shard 1": "host-1"}
        cluster.places |= {f"worker {worker}": "host-0" for worker in range(3)}

        def lose_sight(process: SimulatedProcess) -> None:
            """The driver does not reach shard 1; workers do."""
            cluster.network.cut_off({"head"}, {"host-1"}, 60.0, both_ways=True)

        cluster.moments.plan("asks JoinWorker", 1, lose_sight)

    scenario = Scenario(0, policy="no_waiting", updates=30, changes=[MembershipChange(5)])
    cluster = run_with(scenario, prepare)
    assert not any("do not fit together" in line for line in cluster.time.story)


def test_a_host_loses_power_after_its_log_was_read() -> None:
    """The new process finds that not all is there that counts, and all is read again."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        cluster.places |= {"shard 0": "host-0", "shard 1": "host-1"}
        faults.plan(Fault("second driver", "version", 7))
        cluster.moments.plan("does MakeShards", 2, lambda process: cluster.lose_power("host-0"))

    cluster = run_with(Scenario(0, sync_log=False), prepare)
    assert any("has lost its end since it was read" in line for line in cluster.time.story)


def test_a_second_driver_finds_a_new_life_at_some_shards_only() -> None:
    """The first was just telling it; the life that follows is another one at every shard."""

    def prepare(cluster: SimulatedCluster, faults: Faults) -> None:
        faults.plan(Fault("kill", "version", 3, "driver"))
        faults.plan(Fault("second driver", "asks OpenShard", 2, delay_s=0.17))

    weather = Weather(delay_s=0.001, jitter=0.0)
    for seed in range(2):
        scenario = Scenario(seed, policy="sync", workers=4, mean_step_s=0.02, weather=weather)
        run_with(scenario, prepare)


def test_the_last_worker_is_asked_to_leave() -> None:
    """It stays: a run without workers would never end, and a resumed one would be asked again."""
    changes = [MembershipChange(3, remove=0), MembershipChange(9)]
    scenario = Scenario(0, workers=1, mean_step_s=2.0, changes=changes)
    cluster = run_well(scenario)
    assert any("worker 0 stays" in line for line in cluster.time.story)


def test_a_release_is_lost_with_power_and_the_version_is_not() -> None:
    """The worker has pushed what it computed there to the other shard, which must not take it: the
    shard that lost the release cannot be given the same gradient."""
    run_well(
        Scenario(
            seed=102317,
            policy="bounded_delay",
            rule="gap_aware",
            workers=5,
            updates=11,
            snapshot_every=2,
            sync_log=False,
            mean_step_s=1.0,
            weather=Weather(delay_s=0.1, jitter=0.0),
            link="every",
            faults=[
                Fault("kill", "version", 3, "it"),
                Fault("power", "appends", 19, "shard", delay_s=0.22994423231627054, seconds=60.0),
                Fault("pause", "version", 3, "driver", seconds=0.3),
            ],
        )
    )


def test_the_only_worker_in_flight_dies_for_good_between_its_pushes() -> None:
    """The others begin when all shards are as far, so the one that has not got its last gradient
    must get it: nobody else would push there."""
    run_well(
        Scenario(
            seed=205564,
            policy="ramp_up_sync",
            rule="dana",
            workers=3,
            shards=3,
            updates=17,
            snapshot_every=2,
            sync_log=False,
            hosts=2,
            weather=Weather(delay_s=0.01, jitter=0.0),
            faults=[
                Fault("partition", "syncs", 2, "worker", delay_s=0.3702730094283211, seconds=100.0),
                Fault("no room", "syncs", 17, "worker", seconds=5.0),
                Fault("pause", "answers", 98, "driver", seconds=100.0),
                Fault("kill", "version", 2, "it"),
            ],
        )
    )


def test_a_worker_has_left_and_a_shard_loses_its_last_gradient() -> None:
    """Some logs tell of the leave. Where it does not count, because it came after what was lost,
    nothing that was to come with it counts."""
    run_well(
        Scenario(
            seed=201396,
            policy="stale_synchronous",
            rule="dana",
            workers=4,
            shards=3,
            updates=42,
            snapshot_every=2,
            sync_log=False,
            not_finite=True,
            weather=Weather(delay_s=0.01, lost=0.05),
            faults=[
                Fault("kill", "version", 10, "shard"),
                Fault("power", "answers", 122, "worker", delay_s=0.4100687546376467, seconds=0.3),
                Fault("torn write", "appends", 51, "it"),
                Fault("pause", "is made", 5, "worker", delay_s=0.44648526386872167, seconds=0.3),
                Fault("kill", "answers", 138, "driver"),
                Fault("kill", "version", 34, "it"),
            ],
            changes=[MembershipChange(34), MembershipChange(14, remove=0)],
        )
    )
