"""Runs whose processes are killed, and what their logs tell."""

import numpy as np

from tardigrad.recording.merge import merge
from tardigrad.recording.shard_logs import read_story
from tardigrad.scheduling import Schedule
from tests.simulation.faults import Fault
from tests.simulation.scenarios import Scenario, run
from tests.simulation.simulated_cluster import SimulatedCluster

KILLS = {
    "worker": [Fault("kill", "version", 9, "worker"), Fault("kill", "version", 17, "worker")],
    "between_pushes": [Fault("kill", "sends PushHeader", 20, "it")],
    "shard": [Fault("kill", "version", 10, "shard 0"), Fault("kill", "version", 18, "shard 1")],
    "driver": [Fault("kill", "version", 13, "driver")],
}


def run_well(scenario: Scenario) -> tuple[SimulatedCluster, Schedule]:
    """`run` checks that the schedule is valid and replays to the same bits and losses."""
    outcome = run(scenario)
    assert not outcome.error, "\n".join([outcome.error, *outcome.story])
    missed = len(scenario.faults) - sum(outcome.happened.values())
    assert not missed, "\n".join([f"{missed} faults did not come about", *outcome.story])
    cluster = outcome.cluster
    disk = cluster.drivers[-1].disk
    stories = [read_story(disk, shard) for shard in range(scenario.shards)]
    batches = cluster.setup.work.batches
    return cluster, merge(stories, scenario.workers, cluster.setup.gated, batches).schedule


def began_anew(schedule: Schedule) -> int:
    """Rows that are fresh without being their worker's first."""
    return int(np.sum(schedule.fresh_rows & (schedule.step > 0)))
