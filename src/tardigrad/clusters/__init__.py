"""Time models: when things happen, and nothing of tensors or rules."""

from tardigrad.clusters.cluster import (
    Absence,
    Clockless,
    Cluster,
    Dispatch,
    StepTimes,
    TimedCluster,
)
from tardigrad.clusters.constant import Constant
from tardigrad.clusters.dispatcher import Dispatcher, FixedOrder, UniformDispatch
from tardigrad.clusters.exponential import Exponential
from tardigrad.clusters.gamma import Gamma
from tardigrad.clusters.lognormal import LogNormal
from tardigrad.clusters.network import Messages, Network, Outage, SlowShard
from tardigrad.clusters.pareto import Pareto
from tardigrad.clusters.several_steps import SeveralSteps
from tardigrad.clusters.stragglers import Stragglers
from tardigrad.clusters.trace import Trace

CLUSTERS: dict[str, type[Cluster]] = {
    "gamma": Gamma,
    "constant": Constant,
    "exponential": Exponential,
    "lognormal": LogNormal,
    "pareto": Pareto,
    "stragglers": Stragglers,
    "trace": Trace,
    "dispatcher": Dispatcher,
}

__all__ = [
    "CLUSTERS",
    "Absence",
    "Clockless",
    "Cluster",
    "Constant",
    "Dispatch",
    "Dispatcher",
    "Exponential",
    "FixedOrder",
    "Gamma",
    "LogNormal",
    "Messages",
    "Network",
    "Outage",
    "Pareto",
    "SeveralSteps",
    "SlowShard",
    "StepTimes",
    "Stragglers",
    "TimedCluster",
    "Trace",
    "UniformDispatch",
]
