"""Power that is lost while shards are told of who leaves or joins: a log that lost its end has not
heard of it, and recovery adds it, and what a worker that left had pushed elsewhere, to what is
left."""

from dataclasses import replace

import pytest

from tardigrad.protocol.coordinator import MembershipChange
from tests.simulation.faults import Fault
from tests.simulation.mutations import without
from tests.simulation.scenarios import Scenario, run
from tests.simulation.simulated_network import Weather

LOST = Fault("power", "has done LeaveWorker", nth=1, target="shard", seconds=5.0)

EVALUATED = Scenario(
    211, policy="async", rule="fasgd", workers=4, shards=3, updates=14, snapshot_every=2,
    sync_log=False, hosts=3, mean_step_s=1.0, not_finite=True, link="budget",
    weather=Weather(delay_s=0.001, jitter=1.0, lost=0.0, repeated=0.1),
    changes=[MembershipChange(3), MembershipChange(12, remove=0)], faults=[LOST],
)  # fmt: skip
"""A version that was evaluated is lost, and what is added makes another one of that number."""
EXPLAINED = Scenario(
    6, policy="ramp_up", rule="schedule_free", workers=5, shards=2, updates=6, snapshot_every=2,
    sync_log=False, hosts=1, mean_step_s=0.1, link="every", codec="top_k_forgets",
    weather=Weather(delay_s=0.1, jitter=1.0, lost=0.05, repeated=0.1),
    changes=[MembershipChange(3), MembershipChange(1, remove=0)], faults=[LOST],
)  # fmt: skip
"""Another shard has a gradient that was computed at the lost version."""
TOLD = Scenario(
    1134, policy="malenia_stop", rule="sgd", workers=1, shards=3, updates=6, sync_log=False,
    hosts=2, mean_step_s=1.0, weather=Weather(delay_s=0.1, jitter=1.0, lost=0.0, repeated=0.1),
    changes=[MembershipChange(5)], ends_early_at=1, more_updates=17,
    faults=[
        Fault("power", "version", nth=5, target="worker", seconds=60.0),
        Fault("kill", "version", nth=4, target="worker", seconds=60.0),
        Fault("partition", "answers", nth=46, delay_s=0.3735770529741356, seconds=0.3),
        Fault("kill", "appends", nth=47, delay_s=0.4307873003124586, seconds=0.3),
        Fault("power", "has done JoinWorker", nth=1, target="shard", delay_s=0.09037526816246011,
              seconds=5.0),
    ],
)  # fmt: skip
"""The row that the lost end of shard 0's log gave to worker 0 is given to the one that joins."""
AGAIN = replace(TOLD, faults=[*TOLD.faults, Fault("kill", "is made", nth=13)])
"""The process that recovery has added it to dies before anybody has heard of it."""


@pytest.mark.parametrize(
    ("scenario", "safeguard", "found"),
    [
        (EVALUATED, "what is added to a log was not evaluated", "was not shown"),
        (EXPLAINED, "what is added to a log explains nothing", "KeyError"),
        (TOLD, "what is added to a log was told to nobody", "push refused: worker 0, step 11"),
        (AGAIN, "what was added to a log that was not opened", "push refused: worker 0, step 11"),
    ],
    ids=["evaluated", "explained", "told", "again"],
)
def test_what_is_added_is_not_what_was_lost(scenario: Scenario, safeguard: str, found: str) -> None:
    assert not run(scenario).error
    with without(f"membership: {safeguard}"):
        assert found in run(scenario).error


def test_several_gradients_of_who_left_are_completed_behind_a_gate() -> None:
    """The second was computed at a version that the answer to the first one would let go of."""
    scenario = Scenario(
        57, policy="no_waiting", rule="fasgd", workers=2, shards=2, updates=14, snapshot_every=2,
        sync_log=False, hosts=2, mean_step_s=1.0, link="budget",
        weather=Weather(delay_s=0.01, jitter=3.0, lost=0.05, repeated=0.1),
        changes=[MembershipChange(8), MembershipChange(11, remove=0)], faults=[LOST],
    )  # fmt: skip
    assert not run(scenario).error


def test_what_a_leaver_had_pushed_comes_to_all_before_they_are_told_again() -> None:
    """The shards had its last gradient, and two lost it with their logs' ends: one that had not
    applied it, where others wait for the same version."""
    scenario = Scenario(
        76, policy="deadline", rule="sgd", workers=4, shards=3, updates=20, sync_log=False,
        hosts=1, mean_step_s=1.0, weather=Weather(delay_s=0.001, jitter=1.0, repeated=0.1),
        changes=[MembershipChange(16, remove=0)],
        faults=[Fault("power", "has done LeaveWorker", nth=2, target="shard", seconds=5.0)],
    )  # fmt: skip
    assert not run(scenario).error
    with without("membership: a leaver's gradients come to all"):
        assert "Stuck" in run(scenario).error


@pytest.mark.parametrize("change", [MembershipChange(3), MembershipChange(3, remove=0)])
def test_what_some_synced_logs_tell_of_a_change_costs_nothing_of_what_they_hold(
    change: MembershipChange,
) -> None:
    """The driver dies, and a shard, when another has heard: what its log has is still explained."""
    told = "has done JoinWorker" if change.remove is None else "has done LeaveWorker"
    faults = [Fault("kill", told, 1, "shard 0"), Fault("kill", told, 1, "driver")]
    scenario = Scenario(1, workers=3, updates=14, changes=[change], faults=faults)
    assert not run(scenario).error
    with without("membership that some logs have"):
        assert "entries of synced logs are void" in run(scenario).error
