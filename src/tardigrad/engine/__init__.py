"""Executors of schedules, and the store of versions."""

from tardigrad.engine.execute import execute, simulate
from tardigrad.engine.observer import Ended, Observer, Started, Tick
from tardigrad.engine.options import Checkpoints, Evaluation, Limits
from tardigrad.engine.run import Diverged, History, Run
from tardigrad.engine.shard import Arrived, Shard
from tardigrad.engine.stop import Stop

__all__ = [
    "Arrived",
    "Checkpoints",
    "Diverged",
    "Ended",
    "Evaluation",
    "History",
    "Limits",
    "Observer",
    "Run",
    "Shard",
    "Started",
    "Stop",
    "Tick",
    "execute",
    "simulate",
]
