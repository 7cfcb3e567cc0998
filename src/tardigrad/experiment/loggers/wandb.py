"""Weights & Biases."""

import secrets
from pathlib import Path
from typing import Any, Literal

from tardigrad.core.checks import require
from tardigrad.engine import Ended, Observer, Started
from tardigrad.engine.observer import EvaluationRecord
from tardigrad.experiment.loggers.extra import extra, numbers

RUN_ID = "run-id"


class WeightsAndBiases(Observer):
    """Metrics and configuration as a run of Weights & Biases.

    Args:
        folder: where its files go; left out: the run's folder.
        name: what it is called there; left out: the run folder's name.
        project: where it is filed there.
        entity: the user or team whose project it is; left out: whoever is logged in.
        mode: "offline": written here, and sent later by `wandb sync`; "online": sent as it goes,
            which needs `wandb login`.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        project: str = "tardigrad",
        entity: str | None = None,
        mode: Literal["offline", "online"] = "offline",
    ) -> None:
        self._wandb = extra("wandb", "wandb")
        require(
            mode == "offline" or self._logged_in(),
            "log: wandb is not logged in here: type `wandb login` (or set WANDB_API_KEY), or write "
            'mode = "offline" and send it later by `wandb sync`',
        )
        self.folder, self.mode = Path(folder), mode
        self._options = {"project": project, "entity": entity, "name": name, "mode": mode}
        self._run: Any = None

    def started(self, start: Started) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        noted = self.folder / RUN_ID
        known = noted.read_text(encoding="utf-8") if start.updates and noted.exists() else None
        identity = known or secrets.token_hex(4)
        noted.write_text(identity, encoding="utf-8")
        self._run = self._wandb.init(
            **self._options,
            dir=str(self.folder),
            id=identity,
            resume="allow",
            config=dict(start.about),
            settings=self._wandb.Settings(silent=True, console="off"),
        )

    def evaluated(self, record: EvaluationRecord) -> None:
        self._run.log({**numbers(record), "update": record["update"]}, step=int(record["update"]))

    def ended(self, end: Ended) -> None:
        self._run.summary["ended_by"] = end.by
        self._run.finish(exit_code=int(end.by in ("diverged", "error")))

    def _logged_in(self) -> bool:
        try:
            return bool(self._wandb.login(prompt=False))
        except self._wandb.errors.UsageError:
            return False
