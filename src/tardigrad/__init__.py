"""Late gradients, put to work: simulate, run and replay asynchronous distributed SGD.

Names are looked up when they are used: torch takes a second to import, and Ray need not be there.
For who reads the code without running it, they are in `__init__.pyi` too.
"""

import warnings
from importlib import import_module
from typing import Any

from tardigrad import renamed
from tardigrad.core.version import __version__ as __version__

PLACES = {
    "tardigrad.clusters": (
        "Absence",
        "Constant",
        "Dispatcher",
        "Exponential",
        "Gamma",
        "LogNormal",
        "Network",
        "Outage",
        "Pareto",
        "SlowShard",
        "StepTimes",
        "Stragglers",
        "TimedCluster",
        "Trace",
    ),
    "tardigrad.core.layout": ("Layout",),
    "tardigrad.engine": (
        "Checkpoints",
        "Diverged",
        "Ended",
        "Evaluation",
        "History",
        "Limits",
        "Observer",
        "Run",
        "Started",
        "Stop",
        "Tick",
        "execute",
        "simulate",
    ),
    "tardigrad.experiment": (
        "Spec",
        "compare",
        "replay",
        "sweep",
    ),
    "tardigrad.experiment.loggers": (
        "MLflow",
        "TensorBoard",
        "WeightsAndBiases",
    ),
    "tardigrad.links": (
        "BandwidthAware",
        "Budget",
        "Codec",
        "Every",
        "Full",
        "Gate",
        "Identity",
        "Int8",
        "Link",
        "RandomK",
        "Sign",
        "SliceOf",
        "TopK",
    ),
    "tardigrad.planning.planned": (
        "Planned",
        "plan",
    ),
    "tardigrad.planning.what_if": ("Failures",),
    "tardigrad.policies": (
        "Async",
        "Backup",
        "BoundedDelay",
        "Deadline",
        "DyLU",
        "Malenia",
        "Partial",
        "PartialPull",
        "Policy",
        "Quorum",
        "RampUp",
        "Rennala",
        "Ringmaster",
        "SoftSync",
        "StaleSynchronous",
        "Sync",
    ),
    "tardigrad.report": (
        "Comparison",
        "PairedDifference",
        "Sweep",
    ),
    "tardigrad.rules": (
        "Correction",
        "Optimizer",
        "Rule",
    ),
    "tardigrad.runtime": (
        "Processes",
        "Scenario",
        "train",
    ),
    "tardigrad.scheduling": (
        "Schedule",
        "pipeline_schedule",
        "schedule",
    ),
    "tardigrad.tasks": (
        "FunctionTask",
        "ModuleTask",
        "Task",
    ),
    "tardigrad.work": (
        "Delivery",
        "LocalSteps",
        "MicroBatches",
        "OneGradient",
        "Work",
    ),
}
MODULES = {"rates": "tardigrad.rules.rates", "rules": "tardigrad.rules"}

__all__ = sorted({name for names in PLACES.values() for name in names} | {"__version__", *MODULES})


def __getattr__(name: str) -> Any:
    if name == "schedules":
        warnings.warn("tardigrad.schedules is now tardigrad.rates", FutureWarning, stacklevel=2)
        return import_module(MODULES["rates"])
    if name in MODULES:
        value: Any = import_module(MODULES[name])
    else:
        place = next((place for place, names in PLACES.items() if name in names), None)
        if place is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What a user may want, and not what this file needs: completion shows it."""
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__})


renamed.install()
