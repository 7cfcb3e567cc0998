"""How many steps workers' rows take, where a policy lets it differ."""

from typing import Protocol


class Pace(Protocol):
    """A state machine without I/O beside shard 0, which hands out rows: one decides, not all."""

    most: int
    """How many steps a row takes that nobody has shortened."""

    def heard(self, worker: int, steps: int, took_s: float) -> None:
        """A row has come, of so many steps, that took so long from start to end."""

    def steps(self, worker: int) -> int:
        """Of its next row."""

    def left(self, worker: int) -> None: ...
