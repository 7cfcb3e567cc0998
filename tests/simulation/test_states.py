"""Workers that keep a state for themselves, where processes die."""

import pytest
import torch

from tardigrad.core.trees import leaves
from tardigrad.recording.recovery import RecoveredRun
from tests.simulation.checks import WithoutCuts
from tests.simulation.faults import Fault
from tests.simulation.killed_runs import KILLS, began_anew, run_well
from tests.simulation.mutations import without
from tests.simulation.scenarios import WORKS, Scenario, run
from tests.simulation.simulated_network import Weather


@pytest.mark.parametrize("policy", ["async", "backup"])
@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("kill", KILLS)
def test_killed_processes_change_no_bit(kill: str, work: str, policy: str) -> None:
    """A worker in a dead one's place begins anew; one of a resumed driver goes on."""
    scenario = Scenario(
        1, policy, workers=3, updates=30, cut_every=4, faults=KILLS[kill], work=work
    )
    _, schedule = run_well(scenario)
    # One that is killed twice may not have pushed in between.
    anew = {"worker": (1, 2), "between_pushes": (1,), "shard": (0,), "driver": (0,)}
    assert began_anew(schedule) in anew[kill]


@pytest.mark.parametrize("kill", KILLS)
def test_steps_that_follow_speeds_are_recorded(kill: str) -> None:
    scenario = Scenario(
        1, workers=3, updates=30, cut_every=4, faults=KILLS[kill], work="local_adamw", dylu=True
    )
    _, schedule = run_well(scenario)
    assert len(set(schedule.steps.tolist())) > 1
    assert schedule.steps.max() == 3


def test_a_state_that_a_cut_has_is_the_one_that_the_logs_tell() -> None:
    """From the cut, and from the beginning: the same, at the end of the same logs."""
    scenario = Scenario(1, workers=3, updates=30, cut_every=4, work="local_adamw")
    cluster, _ = run_well(scenario)
    disk = cluster.drivers[-1].disk
    assert any("/states." in name for name in disk.names("cuts/"))
    from_cut = RecoveredRun(cluster.setup, disk)
    from_start = RecoveredRun(cluster.setup, WithoutCuts(disk))
    for worker in range(3):
        found = leaves(from_cut.kept(worker))
        assert found
        for one, other in zip(found, leaves(from_start.kept(worker)), strict=True):
            assert torch.equal(one, other)


def test_a_cut_of_a_deposed_driver_without_a_workers_state_is_passed_over() -> None:
    """That worker had just begun anew when the cut was made. The next driver did not see the cut
    yet, and let it go on with what the logs told."""
    scenario = Scenario(
        1202350, policy="rennala", rule="adam", workers=3, shards=3, updates=12, cut_every=3,
        snapshot_every=2, sync_log=True, late_files=True, hosts=3, mean_step_s=0.1, link="full",
        not_finite=True, work="heavy_ball", dylu=True, ends_early_at=4, more_updates=19,
        weather=Weather(delay_s=0.01, jitter=3.0, lost=0.3, repeated=0.1, call_lost=0.01),
        faults=[
            Fault("full disk", "sends PushHeader", nth=73, target="shard", seconds=60.0),
            Fault("power", "version", nth=6, target="it", delay_s=0.394161844870047, seconds=100.0),
        ],
        later_faults=[
            Fault(
                "second driver", "has done SaveCut", nth=3, target="shard",
                delay_s=0.024798364802782413, seconds=0.3,
            ),
            Fault("kill", "version", nth=7, target="worker", seconds=100.0),
            Fault(
                "partition", "appends", nth=121, target="shard",
                delay_s=0.13742177059293603, seconds=100.0,
            ),
            Fault(
                "one-way partition", "sends VersionRequest", nth=3, target="shard",
                delay_s=0.025082402506496793, seconds=60.0,
            ),
        ],
    )  # fmt: skip
    assert not run(scenario).error
    with without("states: cuts without one that was gone on with do not count"):
        assert "other bits" in run(scenario).error


def test_begins_anew_as_long_as_nothing_was_finite() -> None:
    """A gradient that is not finite leaves the state as it was."""
    scenario = Scenario(0, workers=4, updates=20, not_finite=True, work="heavy_ball")
    _, schedule = run_well(scenario)
    first = ~schedule.finite & (schedule.step == 0)
    assert first.any()  # worker 3's
    after = (schedule.worker == schedule.worker[first][0]) & (schedule.step == 1)
    assert schedule.fresh_rows[after].all()


@pytest.mark.parametrize(
    ("safeguard", "scenario"),
    [
        ("states: cuts have them", Scenario(1, faults=KILLS["driver"])),
        ("states: a new life says that it begins anew", Scenario(1, faults=KILLS["worker"])),
        ("states: who goes on with one is given it", Scenario(1, faults=KILLS["driver"])),
        ("states: what was not finite leaves them", Scenario(1, not_finite=True)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_safeguard_is_needed(safeguard: str, scenario: Scenario) -> None:
    scenario.workers, scenario.updates, scenario.cut_every = 3, 30, 4
    scenario.work = "heavy_ball"
    assert not run(scenario).error
    with without(safeguard):
        assert run(scenario).error
