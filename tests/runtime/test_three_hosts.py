"""A cluster of three hosts, as docs/cluster.md has it: a cable is pulled, a host dies."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.runtime.hosts import Host, Switch, hosts
from tests.runtime.processes_of_runs import shard_process, until
from tests.runtime.run_checks import (
    assert_nothing_lost_or_twice,
    updates_logged,
    without_start,
)
from tests.runtime.three_hosts import SHARDS

pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make hosts with their own network"),
]

PORT = 6379
ROOM = 6
"""CPUs of each host but the first: one alone has room for the whole run."""
STORE = 80 * 1024 * 1024
RUN_S = 600.0
LATE_S = 75.0
"""Of a folder as over NFS, where it is up to 60 s; longer than a short run."""


@dataclass
class Cluster:
    switch: Switch
    head: Host
    others: list[Host]
    env: Mapping[str, str]

    @property
    def address(self) -> str:
        return f"{self.head.address}:{PORT}"


def ray(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "ray.scripts.scripts", *arguments]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """The head has no room for actors: it and the driver are on the first host, all else on the
    others."""
    with three_hosts(tmp_path, head_room=0) as made:
        yield made


@contextmanager
def three_hosts(tmp_path: Path, head_room: int) -> Iterator[Cluster]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    home = {"HOME": str(tmp_path), "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    env = {**kept, **home}
    with hosts(3) as (switch, (head, *others)):
        head.run(ray("get-auth-token", "--generate"), env)
        start = ["start", f"--object-store-memory={STORE}"]
        at = [f"--node-ip-address={head.address}", f"--port={PORT}", "--include-dashboard=false"]
        head.run(ray(*start, "--head", *at, f"--num-cpus={head_room}"), env)
        for other in others:
            address = f"--address={head.address}:{PORT}"
            here = f"--node-ip-address={other.address}"
            other.run(ray(*start, address, here, f"--num-cpus={ROOM}"), env)
        yield Cluster(switch, head, others, env)


@dataclass
class Training:
    """A run, and what its driver says."""

    folder: Path
    """As this process sees it."""
    updates: int
    driver: "subprocess.Popen[str]"
    said: Path

    def wait_for_updates(self, updates: int) -> None:
        def made() -> bool:
            assert self.driver.poll() is None, self.said.read_text()
            return updates_logged(self.folder, 0) >= updates

        until(made, pause_s=0.2)

    def lines(self) -> list[str]:
        """Until its end, which is the one that was asked for."""
        self.driver.wait(RUN_S)
        lines = self.said.read_text().splitlines()
        assert self.driver.returncode == 0, "\n".join(lines)
        assert lines.pop() == "replays bit for bit"
        assert_nothing_lost_or_twice(self.folder, SHARDS, self.updates)
        return without_start(lines)


@contextmanager
def training(
    cluster: Cluster,
    folder: Path,
    policy: str,
    updates: int,
    log: str = "no sync",
    seen_as: Path | None = None,
) -> Iterator[Training]:
    script = [sys.executable, "-m", "tests.runtime.three_hosts"]
    command = [*script, str(seen_as or folder), cluster.address, policy, str(updates), log]
    said = folder.parent / "said"
    with open(said, "w", encoding="utf-8") as out:
        driver = subprocess.Popen(
            cluster.head.command(command), env=cluster.env, stdout=out, stderr=out, text=True
        )
    try:
        yield Training(folder, updates, driver, said)
    finally:
        driver.kill()
        driver.wait()


def actors(host: Host) -> dict[str, int]:
    return {kind: len(host.processes(f"ray::{kind}")) for kind in ("ShardActor", "WorkerActor")}


def test_six_processes_are_spread_over_three_hosts(tmp_path: Path) -> None:
    with (
        three_hosts(tmp_path, head_room=ROOM) as cluster,
        training(cluster, tmp_path / "run", "sync", 200) as run,
    ):
        run.wait_for_updates(1)
        everywhere = [cluster.head, *cluster.others]
        assert [sum(actors(host).values()) for host in everywhere] == [2, 2, 2]


def test_a_run_goes_on_when_a_cable_was_out_for_20_s(cluster: Cluster, tmp_path: Path) -> None:
    """Nobody is taken for dead, and nobody has to say a word."""
    far = cluster.others[1]
    with training(cluster, tmp_path / "run", "sync", 80) as run:
        run.wait_for_updates(10)
        assert [sum(actors(host).values()) for host in cluster.others] == [3, 3]
        cluster.switch.down(far)
        time.sleep(20.0)
        before = updates_logged(run.folder, 0)
        assert before < 40
        cluster.switch.up(far)
        assert run.lines() == []


def test_a_host_that_is_cut_off_for_90_s_is_replaced_and_fenced(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Its processes live on for a while, beside those that took their place; then Ray gives it up,
    and it comes back to a cluster that does not know it any more."""
    with training(cluster, tmp_path / "run", "async", 1200) as run:
        run.wait_for_updates(10)
        shard, old, far = shard_away_from_the_first(run.folder, cluster)
        logs = f"logs/shard-{shard}.*.log"
        cluster.switch.down(far)
        end = time.monotonic() + 90.0
        lived_beside = False
        while time.monotonic() < end:
            replaced = len(list(run.folder.glob(logs))) > 1
            lived_beside = lived_beside or (replaced and far.has(old))
            time.sleep(0.5)
        assert updates_logged(run.folder, shard) < 1200
        cluster.switch.up(far)
        until(lambda: actors(far) == {"ShardActor": 0, "WorkerActor": 0})
        lines = run.lines()
    assert lived_beside
    assert any(line.startswith(f"shard {shard} died (") for line in lines)


def test_a_killed_host_is_made_up_for(cluster: Cluster, tmp_path: Path) -> None:
    with training(cluster, tmp_path / "run", "sync", 120) as run:
        run.wait_for_updates(30)
        shard, _, far = shard_away_from_the_first(run.folder, cluster)
        workers = actors(far)["WorkerActor"]
        far.kill()
        lines = run.lines()
        assert sum(actors(far).values()) == 0
    assert any(line.startswith(f"shard {shard} died (") for line in lines)
    assert sum(line.startswith("worker") for line in lines) >= workers


def training_seen_late(
    cluster: Cluster, folder: Path, kind: str, updates: int, log: str = "sync_log"
) -> AbstractContextManager[Training]:
    """In a folder as hosts see it over a network."""
    behind, place = folder / "behind", folder / "seen"
    behind.mkdir()
    place.mkdir()
    serve = [sys.executable, "-m", "tests.runtime.late_folder", str(behind), str(place)]
    for host in [cluster.head, *cluster.others]:
        host.run([*serve, str(LATE_S), kind], cluster.env)
    return training(cluster, behind / "run", "sync", updates, log, seen_as=place / "run")


def test_a_short_run_waits_for_logs_that_are_seen_late(cluster: Cluster, tmp_path: Path) -> None:
    """The folder was last looked at before they were there."""
    with training_seen_late(cluster, tmp_path, "late", 10) as run:
        (line,) = run.lines()
    assert "log is not seen from here yet: the run's folder shows" in line


def test_a_killed_host_is_made_up_for_from_logs_that_are_seen_late(
    cluster: Cluster, tmp_path: Path
) -> None:
    with training_seen_late(cluster, tmp_path, "late", 60) as run:
        run.wait_for_updates(10)
        cluster.others[1].kill()
        lines = run.lines()
    assert any(line.startswith("shard ") and " died (" in line for line in lines)


def test_a_folder_that_is_known_to_be_seen_late_is_refused_without_the_synced_log(
    cluster: Cluster, tmp_path: Path
) -> None:
    with training_seen_late(cluster, tmp_path, "sshfs", 10, "no sync") as run:
        assert run.driver.wait(RUN_S) != 0
    said = run.said.read_text()
    assert "is on fuse.sshfs, where other machines see a log only once it is synced: set" in said


def shard_away_from_the_first(folder: Path, cluster: Cluster) -> tuple[int, int, Host]:
    """A shard, its process and its host, which is none of the driver's."""
    process = shard_process(folder, 1)
    (host,) = [host for host in cluster.others if host.has(process)]
    return 1, process, host
