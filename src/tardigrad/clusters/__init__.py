"""Time models: when things happen, and nothing of tensors or rules."""

from tardigrad.clusters.cluster import (
    Absence,
    Clockless,
    Cluster,
    Dispatch,
    Messages,
    Network,
    StepTimes,
    TimedCluster,
)
from tardigrad.clusters.dispatcher import Dispatcher, FixedOrder, UniformDispatch
from tardigrad.clusters.gamma import Gamma

CLUSTERS: dict[str, type[Cluster]] = {"gamma": Gamma, "dispatcher": Dispatcher}

__all__ = [
    "CLUSTERS",
    "Absence",
    "Clockless",
    "Cluster",
    "Dispatch",
    "Dispatcher",
    "FixedOrder",
    "Gamma",
    "Messages",
    "Network",
    "StepTimes",
    "TimedCluster",
    "UniformDispatch",
]
