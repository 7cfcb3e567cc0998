"""Epochs: numbers that only grow, so that what an older process does can be told and refused.

An epoch is taken by creating its file, which succeeds for one of two that try. A driver takes one
when it begins, one for every shard's process that it makes later, and one to finish; each says
which driver took it. One that finds another driver's epoch behind its own has been deposed.

Each also says how many updates the run is to have. One that is taken to extend it says more, and
the run is longer from then on: who begins or finishes it with fewer is refused.
"""

import json
from typing import Any, NamedTuple

from tardigrad.recording.disk import Disk

PREFIX = "epochs/"
BEGIN, REPLACE, FINISH, EXTEND = "begin", "replace", "finish", "extend"


class Deposed(ValueError):
    """Another driver goes on with the run."""


class RunFinished(ValueError):
    """A driver has finished the run."""


class Length(NamedTuple):
    """How many updates a run is to have."""

    updates: int
    first: int
    """How many it was begun with."""


def length(disk: Disk, first: int) -> Length:
    """As the newest epoch says; where there is none, it begins with `first` updates."""
    return _length(newest_epoch(disk)[1], first)


def _length(about: dict[str, Any], first: int) -> Length:
    """Epochs did not always say it; such a run has not been extended."""
    return Length(about.get("updates", first), about.get("first_updates", first))


def finished_with(disk: Disk) -> int | None:
    """The last epoch of the driver that has finished the run; None: none has."""
    newest, about = newest_epoch(disk)
    return newest - 1 if about.get("purpose") == FINISH else None


class Epochs:
    """One driver's, of a run that it makes so long."""

    def __init__(self, disk: Disk, driver: str, wanted: Length) -> None:
        self._disk, self._driver, self._wanted = disk, driver, wanted
        self.last = 0
        """The last that this driver took; 0: none yet."""

    def take(self, purpose: str) -> int:
        """The next one. Refused where another driver has taken one since this one's last."""
        while True:
            newest, about = newest_epoch(self._disk)
            if about.get("purpose") == FINISH and purpose != EXTEND:
                raise RunFinished("the run has been finished by a driver; there is nothing to do")
            if self.last:
                self._check(newest, about)
            updates, first = self._wanted
            before = _length(about, first).updates
            if before > updates or (before < updates and purpose != EXTEND):
                raise Deposed(
                    f"another driver ({about.get('driver')}) has made this a run of {before} "
                    f"updates, this one is for {updates}: that one goes on"
                )
            taken = {
                "driver": self._driver,
                "purpose": purpose,
                "updates": updates,
                "first_updates": first,
            }
            if self._disk.create(_name(newest + 1), json.dumps(taken).encode()):
                self.last = newest + 1
                return self.last

    def check(self) -> None:
        """Refuse to go on where another driver has begun."""
        self._check(*newest_epoch(self._disk))

    def _check(self, newest: int, about: dict[str, Any]) -> None:
        if newest != self.last:
            raise Deposed(
                f"another driver ({about.get('driver')}) has taken over this run: what this one "
                "does is void, and that one goes on"
            )


def newest_epoch(disk: Disk) -> tuple[int, dict[str, Any]]:
    names = disk.names(PREFIX)
    if not names:
        return 0, {}
    data = disk.read(names[-1])
    number = int(names[-1].removeprefix(PREFIX).removesuffix(".json"))
    return number, json.loads(data) if data else {}


def _name(epoch: int) -> str:
    return f"{PREFIX}{epoch:08d}.json"
