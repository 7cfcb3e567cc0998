"""Shells of shards and workers in one process, without Ray: what they leave behind, and what the
connections between them survive."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.core.layout import Sharding
from tardigrad.protocol.calls import AskShard, AskWorker, BeginWork, FinishShard, OpenShard
from tardigrad.protocol.worker_session import WorkerStart
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.merge import merge
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.setup import RunSetup
from tardigrad.recording.shard_logs import read_story
from tardigrad.runtime.ray_setup import ActorPlace, RaySetup
from tardigrad.runtime.shard_actor import ShardActor
from tardigrad.runtime.shard_shell import SentOrigin, ShardShell
from tardigrad.runtime.worker_actor import WorkerActor
from tardigrad.runtime.worker_shell import WorkerShell
from tardigrad.transport.connect import connect

RULE = tg.rules.gap_aware(0.05)
HERE = ActorPlace("here", os.getuid(), os.getpid(), "127.0.0.1")
SHARDS, WORKERS, UPDATES = 2, 2, 40


def gradient(view: Tensor, worker: int, step: int) -> Tensor:
    return 0.1 * view + worker


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


class Shells:
    """Those of one run, driven as far as the tests need it."""

    def __init__(
        self,
        folder: Path,
        gradient: Callable[[Tensor, int, int], Tensor] = gradient,
        shared_memory: bool = True,
        worker_node: str = "here",
    ) -> None:
        self.task = tg.FunctionTask(torch.linspace(-1, 1, 3000), gradient)
        sharding = Sharding.divide(self.task.layout, SHARDS)
        run = RunSetup(self.task, RULE, tg.Async(), sharding, WORKERS, UPDATES)
        self.setup = RaySetup(run, folder, bytes(32), time.time(), shared_memory)
        self.disk = FolderDisk(folder)
        recovered = RecoveredRun(run, self.disk)
        self.shards = [
            ShardShell(self.setup, SentOrigin.of(recovered, shard, 1), False, HERE)
            for shard in range(SHARDS)
        ]
        self.places = {number: shard.place for number, shard in enumerate(self.shards)}
        there = HERE._replace(node=worker_node)
        self.workers = [WorkerShell(self.setup, worker, there) for worker in range(WORKERS)]

    def begin(self) -> None:
        for shard in self.shards:
            shard.call(OpenShard(UPDATES))
        for number, worker in enumerate(self.workers):
            start = WorkerStart(number, 0, 0, number, (0,) * SHARDS, (1,) * SHARDS)
            worker.call(BeginWork(start), self.places)

    def version(self) -> int:
        return min(shard.call(AskShard()).version for shard in self.shards)

    def finish(self) -> None:
        """To the end; what happened executes to the same bits."""
        until(lambda: self.version() == UPDATES)
        theta = torch.cat([shard.call(FinishShard()).theta for shard in self.shards])
        schedule = merge([read_story(self.disk, s) for s in range(SHARDS)], WORKERS).schedule
        self.close()
        assert torch.equal(tg.execute(schedule, self.task, RULE, engine="exact").params, theta)

    def close(self) -> None:
        for worker in self.workers:
            worker.close()
        for shard in self.shards:
            shard.close()


@contextmanager
def nothing_left() -> Iterator[None]:
    """No thread, file or mapped memory that was not there before."""

    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:")

    def files() -> int:
        return len(os.listdir("/proc/self/fd"))

    threads, fds, memory = set(threading.enumerate()), files(), mapped()
    yield
    until(lambda: set(threading.enumerate()) <= threads)
    gc.collect()
    until(lambda: files() <= fds)
    until(lambda: mapped() <= memory)


@pytest.mark.parametrize(
    ("shared_memory", "worker_node"), [(True, "here"), (False, "here"), (True, "elsewhere")]
)
def test_a_run_leaves_nothing_behind(shared_memory: bool, worker_node: str, tmp_path: Path) -> None:
    """Through shared memory, a Unix socket, and TCP."""
    Shells(tmp_path / "first").close()  # what is loaded once is loaded
    with nothing_left():
        shells = Shells(tmp_path / "run", gradient, shared_memory, worker_node)
        shells.begin()
        shells.finish()
        del shells


def test_a_gradient_that_is_computed_as_the_run_ends_goes_nowhere(tmp_path: Path) -> None:
    began, go_on = threading.Event(), threading.Event()

    def slow(view: Tensor, worker: int, step: int) -> Tensor:
        if step == 3:
            began.set()
            go_on.wait(60)
        return gradient(view, worker, step)

    with nothing_left():
        shells = Shells(tmp_path, slow)
        shells.begin()
        assert began.wait(60)
        shells.close()
        logs = [path.read_bytes() for path in sorted(tmp_path.glob("logs/*"))]
        go_on.set()
        del shells
    assert [path.read_bytes() for path in sorted(tmp_path.glob("logs/*"))] == logs


def test_a_broken_connection_is_made_again_and_nothing_is_lost(tmp_path: Path) -> None:
    """Somebody else comes in as worker 0, so that the shard lets go of the one who is there."""
    shells = Shells(tmp_path)
    shells.begin()
    address = shells.places[1].listener
    assert address is not None
    for _ in range(5):
        closed = threading.Event()
        connect(
            address,
            shells.setup.secret,
            True,
            [0, 0, *HERE[:3]],
            lambda connection, header, arrays: None,
            lambda connection, reason, closed=closed: closed.set(),  # type: ignore[misc]
            10.0,
        )
        assert closed.wait(60)  # worker 0 has come in again
    shells.finish()


def test_who_watches_a_shard_hears_when_its_updates_are_made(tmp_path: Path) -> None:
    shells = Shells(tmp_path)
    shells.begin()

    def watching(**until: bool) -> list[threading.Thread]:
        made = [threading.Thread(target=s.watch, kwargs=until, daemon=True) for s in shells.shards]
        for thread in made:
            thread.start()
        return made

    to_the_end = watching()
    for thread in watching(until_done=True):
        thread.join(60)
        assert not thread.is_alive()
    assert shells.version() == UPDATES
    assert all(thread.is_alive() for thread in to_the_end)
    shells.close()
    for thread in to_the_end:
        thread.join(60)
        assert not thread.is_alive()


def test_an_error_is_told_to_who_watches(tmp_path: Path) -> None:
    def wrong(view: Tensor, worker: int, step: int) -> Tensor:
        if step == 3:
            raise KeyError("a user's own")
        return gradient(view, worker, step)

    with nothing_left():
        shells = Shells(tmp_path, wrong)
        shells.begin()
        with pytest.raises(KeyError, match="a user's own"):
            shells.workers[0].watch()
        with pytest.raises(KeyError, match="a user's own"):
            shells.workers[0].call(AskWorker(), {})
        shells.close()
        del shells


@pytest.fixture
def thawed() -> Iterator[None]:
    """What actors keep collections from looking at, in this process too."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("kind", [ShardActor, WorkerActor])
def test_collections_in_an_actor_do_not_look_at_what_was_loaded(
    kind: type[ShardActor | WorkerActor],
) -> None:
    """There is one at the end of each run, for which the driver waits."""
    gc.unfreeze()
    kind()
    watched = {id(one) for one in gc.get_objects()}
    assert id(vars(torch)) not in watched
    assert gc.get_freeze_count() > 100_000


@pytest.mark.usefixtures("thawed")
@pytest.mark.parametrize("kind", [ShardActor, WorkerActor])
def test_who_watches_again_after_a_broken_link_and_is_heard_after_the_end_sees_no_error(
    kind: type[ShardActor | WorkerActor],
) -> None:
    """Ray would print it, at the end of a run in which nothing had gone wrong."""
    watch: Any = kind().watch
    watch()
