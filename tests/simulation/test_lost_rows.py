"""Rows of a log's end that is void."""

from tardigrad.protocol.coordinator import MembershipChange
from tests.simulation.faults import Fault
from tests.simulation.scenarios import Scenario
from tests.simulation.simulated_network import Weather
from tests.simulation.test_directed import run_well


def test_a_row_that_was_given_anew_does_not_explain_who_had_it_before() -> None:
    """Shard 0 is read while another driver's still writes. What worker 1 had pushed to shard 1 is
    completed before it leaves, and rows are given for it that the unread end gave to others."""
    scenario = Scenario(
        800543, policy="malenia_stop", rule="fasgd", workers=2, shards=2, updates=19, cut_every=3,
        snapshot_every=2, sync_log=True, late_files=True, hosts=4, mean_step_s=0.02,
        not_finite=True, work="local_momentum", dylu=True,
        weather=Weather(delay_s=0.001, jitter=0.0),
        faults=[
            Fault("second driver", "sends PushHeader", nth=55, seconds=100.0),
            Fault("torn write", "appends", nth=23),
            Fault("torn write", "appends", nth=116, seconds=100.0),
            Fault("full disk", "version", nth=13, seconds=0.3),
        ],
        changes=[
            MembershipChange(at_update=6), MembershipChange(at_update=7, remove=0),
            MembershipChange(at_update=4, remove=1),
        ],
    )  # fmt: skip
    run_well(scenario)


def test_what_was_stamped_with_a_version_that_is_lost_is_void() -> None:
    """Shard 0 loses a version of which a link had held the numbers back: a worker had waited for
    it all the same, and what it pushed elsewhere took the shard's round for its own."""
    scenario = Scenario(
        977007, policy="deadline", rule="fasgd", workers=5, shards=3, updates=25, cut_every=0,
        snapshot_every=5, sync_log=False, hosts=4, mean_step_s=0.1, link="bandwidth_reapply",
        weather=Weather(delay_s=0.01, jitter=1.0, lost=0.3, repeated=0.1, call_lost=0.0),
        faults=[
            Fault("power", "version", nth=16, seconds=100.0),
            Fault("kill", "answers", nth=111, target="driver", delay_s=0.39485006326723393),
            Fault("kill", "version", nth=2, target="shard", seconds=60.0),
        ],
    )  # fmt: skip
    run_well(scenario)
