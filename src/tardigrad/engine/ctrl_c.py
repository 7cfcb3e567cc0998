"""Ctrl-C between two updates, where a run can be saved, in place of in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class CtrlC:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.asked = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # the second time: at once
            raise KeyboardInterrupt
        self.asked = True


@contextmanager
def interrupts_noted(wanted: bool = True) -> Iterator[CtrlC]:
    """While the block runs, the first Ctrl-C is noted alone; a second one interrupts as ever.

    Not where Python would not be interrupted by it: in a thread, and where the program has a
    handler of its own.
    """
    noted = CtrlC()
    here = threading.current_thread() is threading.main_thread()
    if not (wanted and here and signal.getsignal(signal.SIGINT) is signal.default_int_handler):
        yield noted
        return
    signal.signal(signal.SIGINT, noted._note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
