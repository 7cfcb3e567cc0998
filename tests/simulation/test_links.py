"""Links where processes die: what is held back is neither lost in silence nor applied twice."""

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.links.link import OnDrop
from tardigrad.protocol.coordinator import MembershipChange
from tardigrad.protocol.messages import Came, PushHeader, Released, Replaced
from tardigrad.recording.shard_logs import read_story
from tardigrad.scheduling import Schedule
from tests.simulation.faults import Fault
from tests.simulation.killed_runs import KILLS, run_well
from tests.simulation.scenarios import LINKS, Scenario, run, with_link
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.simulated_network import Weather


@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("link", LINKS)
def test_killed_processes_change_no_bit(link: str, kill: str) -> None:
    """Cuts are made on the way, so that what workers hold back has to be found in them."""
    scenario = Scenario(1, workers=3, updates=30, cut_every=4, faults=KILLS[kill])
    _, schedule = run_well(with_link(scenario, link))
    withheld = schedule.wire_sent == 0
    assert withheld[schedule.wire_pull == 1].any()
    assert withheld[schedule.wire_pull == 0].any() == LINKS[link].withholds_pushes


@pytest.mark.parametrize(
    "scenario",
    [
        Scenario(2, faults=[Fault("kill", "sends PushHeader", 21, "it")]),
        Scenario(2, workers=3, changes=[MembershipChange(5, remove=0)]),
    ],
    ids=["killed", "removed"],
)
def test_what_a_worker_had_not_sent_is_dropped_with_it(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(LINKS, "rare", tg.Every(push=8))
    _, schedule = run_well(with_link(scenario, "rare"))
    unsent = schedule.drop_reason == schedule.reasons.index("unsent")
    assert 1 <= unsent.sum() <= 7 * scenario.shards
    assert len(set(schedule.worker[schedule.drop_row[unsent]].tolist())) == 1
    assert not np.isin(schedule.drop_row[unsent], schedule.group_rows).any()


def test_nothing_is_merged_into_a_gradient_that_is_not_finite() -> None:
    _, schedule = run_well(with_link(Scenario(5, updates=20, not_finite=True), "every"))
    assert {"merged", "not finite"} <= set(schedule.reasons)


@pytest.mark.parametrize("on_drop", ["reapply", "average"])
def test_a_new_life_begins_with_a_push_and_with_parameters(
    on_drop: OnDrop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever gates say: there is nothing to apply again, and nothing to compute at."""
    monkeypatch.setitem(LINKS, "never", tg.BandwidthAware(1e9, 1e9, on_drop))
    updates, faults = (30, KILLS["worker"]) if on_drop == "reapply" else (2, [])
    scenario = Scenario(3, workers=2, updates=updates, faults=faults)
    cluster, _ = run_well(with_link(scenario, "never"))
    lives: set[tuple[int, int]] = set()
    fresh: set[int] = set()
    for entry in read_story(cluster.drivers[-1].disk, 0).entries:
        match entry.event:
            case Came(message) if isinstance(message.body, PushHeader):
                life = (message.worker, message.life)
                assert message.body.crosses == (life not in lives)
                lives.add(life)
            case Replaced(worker):
                fresh.add(worker)
        for released in entry.decided:
            if isinstance(released, Released):
                assert released.carries == (released.worker in fresh)
                fresh.discard(released.worker)
    assert len(lives) == 2 + len(faults)


@pytest.mark.parametrize("link", ["every_pull", "full"])
def test_a_worker_that_says_nothing_pins_few_versions_however_often_a_driver_resumes(
    link: str,
) -> None:
    """Each driver gives it another life, which is paused before it says a word; shards check what
    they keep."""
    faults = [Fault("kill", "version", 8, "driver")]
    for time in range(2, 23):
        faults.append(Fault("pause", "has done BeginWork", 2 * time, "worker 1", seconds=5000.0))
        faults.append(Fault("kill", "version", 8 + 3 * time, "driver"))
    scenario = Scenario(
        1, policy="async", rule="gap_aware", workers=2, shards=2, updates=96, link=link,
        mean_step_s=0.1, hosts=3, weather=Weather(delay_s=0.01), faults=faults,
    )  # fmt: skip
    outcome = run(scenario)
    assert not outcome.error, "\n".join([outcome.error, *outcome.story])
    assert len(outcome.cluster.drivers) > 15


def one_worker(link: str) -> tuple[SimulatedCluster, Schedule]:
    return run_well(with_link(Scenario(4, workers=1, updates=25), link))


@pytest.mark.parametrize("link", LINKS)
def test_one_worker_is_as_in_the_event_loop(link: str) -> None:
    """Messages take time here and none there; with one worker the order is the same."""
    cluster, schedule = one_worker(link)
    setup = cluster.setup
    simulated = tg.simulate(
        setup.task, setup.rule, setup.policy, tg.Constant(1, 1.0), updates=setup.updates,
        seed=setup.seed, shards=setup.shards, link=setup.link, engine="exact",
    )  # fmt: skip
    finals = cluster.drivers[-1].finals
    assert finals is not None
    assert torch.equal(torch.cat([final.theta for final in finals]), simulated.params)
    for shard in range(setup.shards):
        for pull in (0, 1):
            real, told = (
                (s.wire_shard == shard) & (s.wire_pull == pull)
                for s in (schedule, simulated.schedule)
            )
            count = min(int(real.sum()), int(told.sum()))
            assert count >= setup.updates
            for name in ("wire_sent", "wire_deviation"):
                here = getattr(schedule, name)[real][:count]
                there = getattr(simulated.schedule, name)[told][:count]
                assert np.array_equal(here, there, equal_nan=True)
