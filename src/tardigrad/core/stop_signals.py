"""Signals that ask for an end: Ctrl-C, and SIGTERM, which schedulers of clusters send.

A run hears them between two updates, where it can be saved, and not in the middle of one.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

CTRL_C, TERM = "Ctrl-C", "SIGTERM"


def terminated(number: int, frame: FrameType | None) -> NoReturn:
    """A handler for SIGTERM: interrupt as Ctrl-C does."""
    raise KeyboardInterrupt(TERM)


def take_sigterm_as_ctrl_c() -> None:
    """For a program of ours; a library leaves SIGTERM to the program that it is in."""
    signal.signal(signal.SIGTERM, terminated)


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """For a block that sets a handler of its own, as `ray.init` does: ours stays, if it was."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    if before is terminated and signal.getsignal(signal.SIGTERM) is not before:
        signal.signal(signal.SIGTERM, before)


def asked_by(error: KeyboardInterrupt) -> str:
    """Which of the two it was."""
    return TERM if error.args == (TERM,) else CTRL_C


HANDLERS = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: terminated}


class StopSignal:
    """Whether an end was asked for, and how."""

    def __init__(self) -> None:
        self.asked: str | None = None

    def _note(self, number: int, frame: FrameType | None) -> None:
        by = TERM if number == signal.SIGTERM else CTRL_C
        if self.asked:  # the second time: at once
            raise KeyboardInterrupt(by)
        self.asked = by


@contextmanager
def interrupts_noted(wanted: bool = True) -> Iterator[StopSignal]:
    """While the block runs, the first signal is noted alone; a second one interrupts as ever.

    Not where Python would not be interrupted by it: in a thread, and where the program has a
    handler of its own.
    """
    noted = StopSignal()
    here = threading.current_thread() is threading.main_thread()
    ours = [n for n, handler in HANDLERS.items() if signal.getsignal(n) is handler]
    if not (wanted and here):
        ours = []
    for number in ours:
        signal.signal(number, noted._note)
    try:
        yield noted
    finally:
        for number in ours:
            signal.signal(number, HANDLERS[number])
