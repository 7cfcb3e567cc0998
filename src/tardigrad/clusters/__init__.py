"""Time models: when things happen, and nothing of tensors or rules."""

from tardigrad.clusters.cluster import Clockless, Cluster, Dispatch, StepTimes, TimedCluster
from tardigrad.clusters.dispatcher import Dispatcher, FixedOrder, UniformDispatch
from tardigrad.clusters.gamma import Gamma

CLUSTERS: dict[str, type[Cluster]] = {"gamma": Gamma, "dispatcher": Dispatcher}

__all__ = [
    "CLUSTERS",
    "Clockless",
    "Cluster",
    "Dispatch",
    "Dispatcher",
    "FixedOrder",
    "Gamma",
    "StepTimes",
    "TimedCluster",
    "UniformDispatch",
]
