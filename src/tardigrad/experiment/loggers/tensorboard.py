"""TensorBoard's event files."""

from pathlib import Path
from typing import Any

from tardigrad.engine import Ended, Observer, Started
from tardigrad.engine.observer import EvaluationRecord
from tardigrad.experiment.loggers.extra import extra, numbers


class TensorBoard(Observer):
    """A curve per measured quantity, against updates; look at it with `tensorboard --logdir`.

    Args:
        folder: where event files go; left out: `tensorboard` in the run's folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        extra("tensorboard", "tensorboard")
        self._writers = extra("torch.utils.tensorboard", "tensorboard")
        self._writer: Any = None
        self._update = 0

    def started(self, start: Started) -> None:
        # What an interrupted run wrote behind its last checkpoint is made again: not shown twice.
        purged = start.updates + 1 if start.updates else None
        self._writer = self._writers.SummaryWriter(str(self.folder), purge_step=purged)
        self._update = start.updates

    def evaluated(self, record: EvaluationRecord) -> None:
        self._update = int(record["update"])
        for name, value in numbers(record).items():
            self._writer.add_scalar(name, value, self._update)
        self._writer.flush()

    def happened(self, what: str) -> None:
        self._writer.add_text("happened", what, self._update)

    def ended(self, end: Ended) -> None:
        self._writer.add_text("ended", end.why, end.updates)
        self._writer.close()
