"""The computers on which a run's numbers come about."""

import os
from collections.abc import Callable
from pathlib import Path

from tardigrad.core.computer import computer

FILE = "computers.txt"


class Computers:
    """Noted in the run's folder, a line each, before they compute anything.

    Kinds of computers round differently. Then what is lost with a shard cannot be computed again to
    the bit, and a replay proves nothing; but the run is not lost, and its user is told.
    """

    def __init__(self, folder: Path, tell: Callable[[str], None]) -> None:
        self._file, self._tell = folder / FILE, tell
        noted = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        self.seen = noted.splitlines()

    @property
    def alike(self) -> bool:
        """Whether what all of them have computed comes out the same here."""
        return all(one == computer() for one in self.seen)

    def note(self, who: str, where: str) -> None:
        """Another process computes, or will."""
        if where in self.seen:
            return
        if self.seen:
            self._tell(
                f"{who} is on {where}, where other processes are on {' and on '.join(self.seen)}: "
                "they may round differently, so what is recovered after a death is right to "
                "rounding, and the run cannot be replayed bit for bit"
            )
        self.seen.append(where)
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(where + "\n")
            file.flush()
            os.fsync(file.fileno())
