"""Late gradients, put to work: simulate, run and replay asynchronous distributed SGD."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from tardigrad import renamed, rules
from tardigrad.clusters import (
    Absence,
    Constant,
    Dispatcher,
    Exponential,
    Gamma,
    LogNormal,
    Network,
    Outage,
    Pareto,
    SlowShard,
    Stragglers,
    Trace,
)
from tardigrad.core.version import __version__
from tardigrad.engine import (
    Checkpoints,
    Diverged,
    Ended,
    Evaluation,
    History,
    Limits,
    Observer,
    Run,
    Started,
    Stop,
    Tick,
    execute,
    simulate,
)
from tardigrad.links import BandwidthAware, Budget, Every, Full
from tardigrad.policies import (
    Async,
    Backup,
    BoundedDelay,
    Deadline,
    Partial,
    PartialPull,
    RampUp,
    SoftSync,
    StaleSynchronous,
    Sync,
)
from tardigrad.rules import Rule, rates
from tardigrad.scheduling import Schedule, schedule
from tardigrad.tasks import FunctionTask, ModuleTask

if TYPE_CHECKING:
    from tardigrad.experiment.loggers import MLflow, TensorBoard, WeightsAndBiases
    from tardigrad.runtime import Processes, Scenario, train

__all__ = [
    "Absence",
    "Async",
    "Backup",
    "BandwidthAware",
    "BoundedDelay",
    "Budget",
    "Checkpoints",
    "Constant",
    "Deadline",
    "Dispatcher",
    "Diverged",
    "Ended",
    "Evaluation",
    "Every",
    "Exponential",
    "Full",
    "FunctionTask",
    "Gamma",
    "History",
    "Limits",
    "LogNormal",
    "MLflow",
    "ModuleTask",
    "Network",
    "Observer",
    "Outage",
    "Pareto",
    "Partial",
    "PartialPull",
    "Processes",
    "RampUp",
    "Rule",
    "Run",
    "Scenario",
    "Schedule",
    "SlowShard",
    "SoftSync",
    "StaleSynchronous",
    "Started",
    "Stop",
    "Stragglers",
    "Sync",
    "TensorBoard",
    "Tick",
    "Trace",
    "WeightsAndBiases",
    "__version__",
    "execute",
    "rates",
    "rules",
    "schedule",
    "simulate",
    "train",
]


def __getattr__(name: str) -> Any:
    """What is of runs on Ray is looked up when it is used, because it needs Ray; loggers, because
    few ask for them."""
    if name in ("MLflow", "TensorBoard", "WeightsAndBiases"):
        return getattr(import_module("tardigrad.experiment.loggers"), name)
    if name in ("Processes", "Scenario", "train"):
        return getattr(import_module("tardigrad.runtime"), name)
    if name == "schedules":
        warnings.warn("tardigrad.schedules is now tardigrad.rates", FutureWarning, stacklevel=2)
        return rates
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


renamed.install()
