"""Observers that a spec names in [log]: who else is told how a run goes, one a file."""

from collections.abc import Callable

from tardigrad.engine import Observer
from tardigrad.experiment.loggers.mlflow import MLflow
from tardigrad.experiment.loggers.tensorboard import TensorBoard
from tardigrad.experiment.loggers.wandb import WeightsAndBiases

LOGGERS: dict[str, Callable[..., Observer]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}

__all__ = ["LOGGERS", "MLflow", "TensorBoard", "WeightsAndBiases"]
