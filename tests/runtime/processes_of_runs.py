"""Finding a run's processes, and moments of it, from outside."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from tardigrad.recording.cuts import cut_numbers, next_cut
from tardigrad.recording.disk import FolderDisk
from tests.runtime.run_checks import updates_logged

LONG_S = 120.0


def until(condition: Callable[[], bool], pause_s: float = 0.02) -> None:
    end = time.monotonic() + LONG_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(pause_s)


def own_cluster() -> dict[str, str]:
    """The environment of a program that starts a Ray of its own, and not as part of this one. Its
    actors are as urgent as we are: as Ray starts them, every other test goes first."""
    plain = {name: text for name, text in os.environ.items() if not name.startswith("RAY_")}
    return {**plain, "RAY_worker_niceness": "0"}


def shard_process(folder: Path, shard: int) -> int:
    """The process that has the newest log of a shard open."""
    log = max(folder.glob(f"logs/shard-{shard}.*.log"))
    writers = writing([log])
    assert writers, f"nobody writes {log}"
    return writers[0]


def writing(logs: Sequence[Path]) -> list[int]:
    """The processes that have one of these open."""
    named = {str(log) for log in logs}
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):  # it has just been closed
            if os.readlink(link) in named:
                found.append(int(link.parts[2]))
    return found


def wait_for_updates(folder: Path, updates: int) -> None:
    until(lambda: updates_logged(folder, 0) >= updates)


def kill_driver(program: str, arguments: Sequence[str], folder: Path, updates: int) -> int:
    """Start a program that drives the run in a folder, kill it after so many updates, and wait
    until Ray has ended its shards. How many updates there were then."""
    driver = subprocess.Popen([sys.executable, "-c", program, *arguments])
    try:
        until(lambda: updates_logged(folder, 0) >= updates or driver.poll() is not None)
        assert driver.poll() is None
        os.kill(driver.pid, signal.SIGKILL)
    finally:
        driver.kill()
        driver.wait()
    made = updates_logged(folder, 0)
    until(lambda: not writing(list(folder.glob("logs/*.log"))), pause_s=0.1)
    return made


def wait_for_a_cut(folder: Path) -> None:
    """Until one has begun and is not whole yet."""
    disk = FolderDisk(folder)

    def half_made() -> bool:
        whole = max(cut_numbers(disk), default=-1)
        return next_cut(disk) > whole + 1 and max(cut_numbers(disk), default=-1) == whole

    until(half_made, pause_s=0.001)


@contextmanager
def beside(do: Callable[[], None]) -> Iterator[None]:
    """Do something while the block runs; its error is the block's."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(do)
        yield
        done.result()
