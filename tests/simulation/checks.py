"""What must hold at a run's end, whatever has happened."""

from collections.abc import Sequence

import torch

import tardigrad as tg
from tardigrad.engine.exact import Exact
from tardigrad.engine.job import Job
from tardigrad.protocol.messages import Applied, Dropped
from tardigrad.recording.disk import Disk
from tardigrad.recording.merge import merge, pushed
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.shard_logs import ShardStory, log_name, read_story
from tardigrad.runtime.shard_process import FinalShard
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.validate import validate
from tests.policies.interrupts import check_interrupts
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.simulated_disk import ReadOnlyDisk
from tests.simulation.simulated_driver import SimulatedDriver


def check(cluster: SimulatedCluster, ended: SimulatedDriver | None = None) -> None:
    """All updates made, nothing acknowledged lost, nothing twice, valid, and the same bits.

    ended: who had finished the run before it was extended.
    """
    setup, driver = cluster.setup, cluster.finished()
    assert driver is not None
    assert driver.finals is not None
    stories = [read_story(driver.disk, shard) for shard in range(setup.shards)]
    for shard, story in enumerate(stories):
        _check_log(cluster, shard, story)
    schedule, losses, _ = merge(stories, setup.workers, setup.gated, setup.work.batches)
    validate(schedule)
    if not cluster.power_lost and not any(
        _ends_void(driver.disk, shard, story) for shard, story in enumerate(stories)
    ):  # else what interrupted a worker may be gone with a log's end
        check_interrupts(schedule, setup.policy)
    replayed = tg.execute(
        schedule, setup.task, setup.rule, engine="exact", work=setup.work, codec=setup.codec
    )
    theta = torch.cat([final.theta for final in driver.finals])
    assert torch.equal(replayed.params, theta), "the replay has other bits"
    assert replayed.history.loss == losses, "the replay has other losses"
    if ended is not None and ended.finals is not None:
        _check_goes_on_from(cluster, schedule, ended.finals)
    if setup.snapshot_every:
        _check_snapshots(cluster, driver.disk)


def _ends_void(disk: Disk, shard: int, story: ShardStory) -> bool:
    """Whether one of its processes went on writing when it was replaced already."""
    logs = ((c.size, disk.read(log_name(shard, c.epoch))) for c in story.chapters)
    return any(log is not None and len(log) > size for size, log in logs)


def _check_goes_on_from(
    cluster: SimulatedCluster, schedule: Schedule, finals: Sequence[FinalShard]
) -> None:
    """Every shard has had the numbers that it had ended with."""
    setup = cluster.setup
    job = Job(schedule, setup.task, setup.rule, setup.sharding, (), setup.work, setup.codec)
    execution = Exact(job)
    had = [final.version == 0 for final in finals]
    while execution.position < schedule.groups:
        at = int(schedule.group_shard[execution.position])
        execution.advance()
        shard, final = execution.shards[at], finals[at]
        if shard.version == final.version:
            had[at] = torch.equal(shard.theta, final.theta)
    assert all(had), f"shards {had} went on from other numbers than they had ended with"


def _check_log(cluster: SimulatedCluster, shard: int, story: ShardStory) -> None:
    came, done, versions, again = set(), set(), 0, 0
    for entry in story.entries:
        push = pushed(entry)
        if push is not None:
            assert push.row not in came, f"row {push.row} came to shard {shard} twice"
            came.add(push.row)
            # In its place the last one that crossed is applied again.
            again += not push.crosses and cluster.setup.link.on_drop == "reapply"
        for item in entry.decided:
            rows = item.rows if isinstance(item, Applied) else ()
            if isinstance(item, Dropped):
                rows = (item.row,)
            versions += isinstance(item, Applied)
            for row in rows:
                again -= row in done
                assert again >= 0, f"row {row} was decided twice at shard {shard}"
                done.add(row)
    updates = cluster.setup.updates
    assert versions == updates, f"shard {shard} made {versions} updates of {updates}"
    for (at, worker, step), row in cluster.promises.items():
        if at == shard:
            assert row in came, f"worker {worker}'s step {step} was acknowledged and is lost"


class WithoutCuts(ReadOnlyDisk):
    """So that everything is executed again from the start."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def read(self, name: str) -> bytes | None:
        return self._disk.read(name)

    def names(self, prefix: str) -> list[str]:
        return [] if prefix.startswith("cuts/") else self._disk.names(prefix)


def _check_snapshots(cluster: SimulatedCluster, disk: Disk) -> None:
    """All were handed out to be evaluated, and are those of the run as it ended."""
    again = RecoveredRun(cluster.setup, WithoutCuts(disk))
    for snapshots in zip(*(replica.snapshots for replica in again.replicas), strict=True):
        version = snapshots[0].version
        theta = torch.cat([snapshot.theta for snapshot in snapshots])
        shown = cluster.shown.get(version, [])
        assert any(torch.equal(one, theta) for one in shown), f"version {version} was not shown"
        assert torch.equal(cluster.shown_last.get(version, theta), theta), (
            f"version {version} was last shown as it was before the run went back"
        )
