"""Executors of schedules, and the store of versions."""

from tardigrad.engine.execute import Tick, execute, simulate
from tardigrad.engine.options import Checkpoints, Evaluation, Limits
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.engine.shard import Arrived, Shard

__all__ = [
    "Arrived",
    "Checkpoints",
    "Diverged",
    "Evaluation",
    "History",
    "Limits",
    "Run",
    "Shard",
    "Tick",
    "execute",
    "simulate",
]
