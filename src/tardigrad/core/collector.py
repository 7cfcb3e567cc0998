"""Python's collector of garbage, out of the way of loops that make none."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused_collector() -> Iterator[None]:
    """Without collections of reference cycles meanwhile.

    A loop that makes many small objects, all freed as soon as nobody refers to them, sets off
    collections all the time, each of which looks through what is waiting and finds nothing: up to a
    fifth of the time of schedules in rounds.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
