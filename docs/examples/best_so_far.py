"""An observer that prints what it is told."""

from collections.abc import Mapping

import tardigrad as tg


class BestSoFar(tg.Observer):
    """Prints the loss whenever it is lower than ever."""

    def __init__(self) -> None:
        self.best = float("inf")

    def started(self, start: tg.Started) -> None:
        losses = [record["validation_loss"] for record in start.records]  # of a resumed run
        self.best = min(losses, default=self.best)

    def evaluated(self, record: Mapping[str, float]) -> None:
        if record["validation_loss"] < self.best:
            self.best = record["validation_loss"]
            print(f"update {record['update']:.0f}: {self.best:.2f}")

    def ended(self, end: tg.Ended) -> None:
        print(f"ended by {end.by}: {end.why}")
