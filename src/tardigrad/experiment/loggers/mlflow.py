"""MLflow."""

import time
from pathlib import Path
from typing import Any

from tardigrad.engine import Ended, Observer, Started
from tardigrad.engine.observer import EvaluationRecord
from tardigrad.experiment.loggers.extra import extra, flat, numbers

RUN_ID = "run-id"
DATABASE = "mlflow.db"
LONGEST = 500
"""Letters that MLflow takes of a parameter's value."""


class MLflow(Observer):
    """Metrics and parameters as a run of MLflow.

    Args:
        folder: where the run's number is noted, so that a resumed run goes on with it.
        name: what it is called there; left out: the run folder's name.
        experiment: the one that it is filed under; made where there is none of this name.
        uri: of a tracking server; left out: a file in the run's folder.
    """

    def __init__(
        self, folder: Path, name: str, experiment: str = "tardigrad", uri: str | None = None
    ) -> None:
        self._mlflow = extra("mlflow", "mlflow")
        self.folder, self.name, self.experiment = Path(folder), name, experiment
        self.uri = uri or f"sqlite:///{self.folder.absolute() / DATABASE}"
        self._client: Any = None
        self._run = ""

    def started(self, start: Started) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._client = self._mlflow.MlflowClient(tracking_uri=self.uri)
        noted = self.folder / RUN_ID
        if start.updates and noted.exists():
            self._run = noted.read_text(encoding="utf-8")
            self._client.update_run(self._run, status="RUNNING")
            return
        found = self._client.get_experiment_by_name(self.experiment)
        where = found.experiment_id if found else self._client.create_experiment(self.experiment)
        self._run = self._client.create_run(where, run_name=self.name).info.run_id
        noted.write_text(self._run, encoding="utf-8")
        for key, value in flat(dict(start.about)).items():
            self._client.log_param(self._run, key, str(value)[:LONGEST])

    def evaluated(self, record: EvaluationRecord) -> None:
        now_ms, update = int(1000 * time.time()), int(record["update"])
        for name, value in numbers(record).items():
            self._client.log_metric(self._run, name, value, timestamp=now_ms, step=update)

    def ended(self, end: Ended) -> None:
        self._client.set_tag(self._run, "ended_by", end.by)
        how = {"diverged": "FAILED", "error": "FAILED", "interrupted": "KILLED"}
        self._client.set_terminated(self._run, status=how.get(end.by, "FINISHED"))
