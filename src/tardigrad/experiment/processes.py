"""Cells in processes of their own, which end with the one that started them."""

import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler
from typing import Any, TypeVar

import torch

from tardigrad.core.checks import require
from tardigrad.experiment.cells import Outcome, RunCell
from tardigrad.experiment.sharing import device_of_runs, share_gib
from tardigrad.scheduling import Schedule

T = TypeVar("T")
Scheduled = Iterator[tuple[list[RunCell], Schedule | None]]
"""Cells that share a schedule, and that schedule."""


def in_processes(
    scheduled: Scheduled,
    firsts: Sequence[RunCell],
    jobs: int,
    check: Callable[[RunCell], None],
    execute: Callable[[RunCell, Schedule | None], Outcome],
) -> Generator[Outcome, None, None]:
    """Outcomes as they come, after `firsts` have been checked."""
    check_sent(firsts[0])
    shares: dict[torch.device, float] = {}
    waiting = ((cell, schedule) for together, schedule in scheduled for cell in together)
    running: set[Future[Outcome]] = set()
    with _processes(jobs) as pool:
        for checked in [pool.submit(check, cell) for cell in firsts]:
            _result(checked)
        while True:
            for cell, schedule in itertools.islice(waiting, jobs - len(running)):
                device = device_of_runs(cell.runs)
                if device not in shares:  # read before any of them takes some
                    shares[device] = share_gib(device, jobs)
                cell = cell._replace(runs=cell.runs.limited_to(shares[device]))
                running.add(pool.submit(execute, cell, schedule))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            # What has ended well is handed over before another's error ends it all.
            for future in sorted(done, key=lambda one: one.exception() is not None):
                yield _result(future)


def check_sent(cell: RunCell) -> None:
    """Refuse what cannot go to another process, before one is started."""
    instead = "define it in a file of its own that can be imported, or use jobs=1"
    try:
        sent = bytes(ForkingPickler.dumps(cell))
    except Exception as error:
        words = " ".join(str(error).split())
        raise ValueError(
            f"{cell.label} cannot be sent to other processes ({words}): {instead}"
        ) from error
    main = sys.modules["__main__"]
    imported = getattr(main, "__file__", None) or getattr(main, "__spec__", None)
    require(
        bool(imported) or b"__main__" not in sent,
        f"{cell.label} is made of code of this session, which other processes cannot import: "
        f"{instead}",
    )


def _result(future: "Future[T]") -> T:
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a process ended before its run did. A script that uses several jobs must call them "
            'under `if __name__ == "__main__":`; otherwise memory may have run out: use fewer jobs'
        ) from error


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes that end with the block; at once where it ends by an error or Ctrl-C."""
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_start)
    try:
        yield pool
    except BaseException:
        # They keep nothing that must be whole, so there is nothing to wait for.
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        _send_no_more(pool)
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _send_no_more(pool: ProcessPoolExecutor) -> None:
    """Before 3.11.5, Python would wait for ever until what it was sending to a process that has
    ended, such as a long schedule, is read (gh-94777)."""
    if sys.version_info < (3, 11, 5):
        queue: Any = pool._call_queue  # type: ignore[attr-defined]
        queue._reader.close()


def _start() -> None:
    """In a new process: one thread, Ctrl-C left to the parent, no life without it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
