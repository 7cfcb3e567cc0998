"""Faults on schedule, for tests: a process kills itself at a named moment, once."""

import os
import signal
import time
from typing import Literal, NamedTuple

from tardigrad.core.checks import count, one_of, require

WORKER_MOMENTS = ("before_push", "between_pushes", "after_push")
SHARD_MOMENTS = ("before_log", "before_release", "after_release")


class Fault(NamedTuple):
    kind: Literal["worker", "shard"]
    number: int
    at: int
    moment: str


def fail_at(
    *,
    worker: int | None = None,
    step: int | None = None,
    shard: int | None = None,
    version: int | None = None,
    moment: str | None = None,
) -> Fault:
    """Kill a worker at one of its steps, or a shard as it makes a version; in a run that is resumed
    too, if that lies behind where it goes on.

    moment: for a worker "before_push", "between_pushes" (its first shard has the gradient, the
    others do not; the default) or "after_push"; for a shard "before_log" (nobody knows of the
    version), "before_release" (it is in the log and with nobody; the default) or "after_release".
    """
    if worker is not None and step is not None and shard is None and version is None:
        count("worker", worker, least=0)
        count("step", step, least=0)
        moment = moment or "between_pushes"
        one_of("moment", moment, WORKER_MOMENTS)
        return Fault("worker", worker, step, moment)
    require(
        shard is not None and version is not None and worker is None and step is None,
        "fail_at takes worker= and step=, or shard= and version=",
    )
    assert shard is not None
    assert version is not None
    count("shard", shard, least=0)
    count("version", version)
    moment = moment or "before_release"
    one_of("moment", moment, SHARD_MOMENTS)
    return Fault("shard", shard, version, moment)


class Fuse:
    """One process's faults. Who takes a dead one's place begins where that died, and a shard a
    version before, if it died before that was logged; it has those alone that lie behind that."""

    def __init__(
        self, faults: tuple[Fault, ...], kind: str, index: int, began: int | None = None
    ) -> None:
        """began: its first step or version; None: it takes nobody's place."""
        mine = [f for f in faults if (f.kind, f.number) == (kind, index)]
        died = -1 if began is None else began + (kind == "shard")
        self._set = {(f.moment, f.at) for f in mine if f.at > died}

    def burn(self, moment: str, at: int, after_s: float = 0.0) -> None:
        """Die here, if this is the moment, as by kill -9; `after_s` lets messages leave first."""
        if (moment, at) in self._set:
            time.sleep(after_s)
            os.kill(os.getpid(), signal.SIGKILL)
