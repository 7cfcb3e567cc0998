"""Epochs: numbers that only grow, so that what an older process does can be told and refused.

An epoch is taken by creating its file, which succeeds for one of two that try. A driver takes one
when it begins, one for every shard's process that it makes later, and one to finish; each says
which driver took it. One that finds another driver's epoch behind its own has been deposed.
"""

import json

from tardigrad.recording.disk import Disk

PREFIX = "epochs/"
BEGIN, REPLACE, FINISH = "begin", "replace", "finish"


class Deposed(ValueError):
    """Another driver goes on with the run."""


class RunFinished(ValueError):
    """A driver has finished the run."""


def finished_with(disk: Disk) -> int | None:
    """The last epoch of the driver that has finished the run; None: none has."""
    newest, about = newest_epoch(disk)
    return newest - 1 if about.get("purpose") == FINISH else None


class Epochs:
    """One driver's."""

    def __init__(self, disk: Disk, driver: str) -> None:
        self._disk, self._driver = disk, driver
        self.last = 0
        """The last that this driver took; 0: none yet."""

    def take(self, purpose: str) -> int:
        """The next one. Refused where another driver has taken one since this one's last."""
        while True:
            newest, about = newest_epoch(self._disk)
            if about.get("purpose") == FINISH:
                raise RunFinished("the run has been finished by a driver; there is nothing to do")
            if self.last:
                self._check(newest, about)
            taken = json.dumps({"driver": self._driver, "purpose": purpose}).encode()
            if self._disk.create(_name(newest + 1), taken):
                self.last = newest + 1
                return self.last

    def check(self) -> None:
        """Refuse to go on where another driver has begun."""
        self._check(*newest_epoch(self._disk))

    def _check(self, newest: int, about: dict[str, str]) -> None:
        if newest != self.last:
            raise Deposed(
                f"another driver ({about.get('driver')}) has taken over this run: what this one "
                "does is void, and that one goes on"
            )


def newest_epoch(disk: Disk) -> tuple[int, dict[str, str]]:
    names = disk.names(PREFIX)
    if not names:
        return 0, {}
    data = disk.read(names[-1])
    number = int(names[-1].removeprefix(PREFIX).removesuffix(".json"))
    return number, json.loads(data) if data else {}


def _name(epoch: int) -> str:
    return f"{PREFIX}{epoch:08d}.json"
