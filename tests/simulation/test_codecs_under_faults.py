"""Gradients that are pushed in another form, where processes die."""

from dataclasses import replace

import pytest
import torch

from tardigrad.recording.recovery import RecoveredRun
from tests.simulation.checks import WithoutCuts
from tests.simulation.faults import Fault
from tests.simulation.killed_runs import KILLS, began_anew, run_well
from tests.simulation.mutations import without
from tests.simulation.scenarios import CODECS, Scenario, run

LINKED = ("full", "every", "bandwidth_reapply", "bandwidth_average")


@pytest.mark.parametrize("link", LINKED)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kill", KILLS)
def test_killed_processes_change_no_bit(kill: str, codec: str, link: str) -> None:
    """The shards' parameters, the recovered ones and those of the replay are the same."""
    scenario = Scenario(
        1, workers=3, updates=30, cut_every=4, faults=KILLS[kill], codec=codec, link=link,
        rule="fasgd",
    )  # fmt: skip
    _, schedule = run_well(scenario)
    if kill == "driver":
        assert not began_anew(schedule)  # its workers go on with what they had not sent


@pytest.mark.parametrize("link", LINKED)
def test_an_error_that_a_cut_has_is_the_one_that_the_logs_tell(link: str) -> None:
    scenario = Scenario(
        1, workers=3, updates=30, cut_every=4, codec="top_k", link=link, rule="fasgd"
    )
    cluster, _ = run_well(scenario)
    disk = cluster.drivers[-1].disk
    from_cut = RecoveredRun(cluster.setup, disk)
    from_start = RecoveredRun(cluster.setup, WithoutCuts(disk))
    for worker in range(3):
        one, other = from_cut.kept(worker), from_start.kept(worker)
        assert one is not None
        assert other is not None
        assert one.error.any()
        assert torch.equal(one.error, other.error)


def test_an_error_goes_with_its_worker() -> None:
    """Without that, a replay has other bits."""
    scenario = Scenario(1, workers=3, updates=30, faults=KILLS["worker"], codec="top_k")
    assert not run(scenario).error
    with without("states: a new life says that it begins anew"):
        assert run(scenario).error
    resumed = replace(scenario, faults=KILLS["driver"], cut_every=4)
    assert not run(resumed).error
    with without("states: who goes on with one is given it"):
        assert run(resumed).error
    with without("states: cuts have them"):
        assert run(resumed).error


@pytest.mark.parametrize(
    ("safeguard", "scenario"),
    [
        ("codecs: what is held back stays with its worker", Scenario(1, link="every")),
        (
            "codecs: an error begins anew at each shard",
            Scenario(1, faults=[*KILLS["worker"], Fault("kill", "version", 22, "shard 1")]),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_safeguard_is_needed(safeguard: str, scenario: Scenario) -> None:
    scenario = replace(scenario, workers=3, updates=30, codec="top_k")
    assert not run(scenario).error
    with without(safeguard):
        assert run(scenario).error
