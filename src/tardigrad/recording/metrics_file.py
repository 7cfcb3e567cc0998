"""`metrics.jsonl`: a line per evaluation, written as it is made."""

import json

from tardigrad.engine.observer import EvaluationRecord, Observer, Started
from tardigrad.recording.folder import METRICS, RunFolder


class MetricsFile(Observer):
    """The first observer of a run in a folder. Lines that a resumed run makes again are taken away
    before it does."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder, self._path = folder, folder.path / METRICS

    def started(self, start: Started) -> None:
        self._folder.write_metrics(start.records)

    def evaluated(self, record: EvaluationRecord) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
