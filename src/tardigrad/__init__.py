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
    StepTimes,
    Stragglers,
    TimedCluster,
    Trace,
)
from tardigrad.core.layout import Layout
from tardigrad.core.version import __version__
from tardigrad.engine import (
    Checkpoints,
    Diverged,
    Evaluation,
    History,
    Limits,
    Run,
    execute,
    simulate,
)
from tardigrad.links import BandwidthAware, Budget, Every, Full, Gate, Link
from tardigrad.policies import (
    Async,
    Backup,
    BoundedDelay,
    Deadline,
    Partial,
    PartialPull,
    Policy,
    RampUp,
    SoftSync,
    StaleSynchronous,
    Sync,
)
from tardigrad.rules import Correction, Optimizer, Rule, rates
from tardigrad.scheduling import Schedule, schedule
from tardigrad.tasks import FunctionTask, ModuleTask, Task

if TYPE_CHECKING:
    from tardigrad.experiment import Spec, replay
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
    "Correction",
    "Deadline",
    "Dispatcher",
    "Diverged",
    "Evaluation",
    "Every",
    "Exponential",
    "Full",
    "FunctionTask",
    "Gamma",
    "Gate",
    "History",
    "Layout",
    "Limits",
    "Link",
    "LogNormal",
    "ModuleTask",
    "Network",
    "Optimizer",
    "Outage",
    "Pareto",
    "Partial",
    "PartialPull",
    "Policy",
    "Processes",
    "RampUp",
    "Rule",
    "Run",
    "Scenario",
    "Schedule",
    "SlowShard",
    "SoftSync",
    "Spec",
    "StaleSynchronous",
    "StepTimes",
    "Stragglers",
    "Sync",
    "Task",
    "TimedCluster",
    "Trace",
    "__version__",
    "execute",
    "rates",
    "replay",
    "rules",
    "schedule",
    "simulate",
    "train",
]


LATER = {
    **dict.fromkeys(("Processes", "Scenario", "train"), "tardigrad.runtime"),
    **dict.fromkeys(("Spec", "replay"), "tardigrad.experiment"),
}


def __getattr__(name: str) -> Any:
    """What takes long to import, or needs Ray, is looked up when it is used."""
    if name in LATER:
        return getattr(import_module(LATER[name]), name)
    if name == "schedules":
        warnings.warn("tardigrad.schedules is now tardigrad.rates", FutureWarning, stacklevel=2)
        return rates
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


renamed.install()
