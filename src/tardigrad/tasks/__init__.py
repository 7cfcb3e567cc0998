"""What is learned: tasks of one's own, and ready-made ones."""

from collections.abc import Callable

from tardigrad.tasks.cifar import cifar10_resnet20, cifar10_wideresnet16_4
from tardigrad.tasks.function import FunctionTask
from tardigrad.tasks.logistic import logistic_regression
from tardigrad.tasks.mnist import mnist_cnn, mnist_mlp
from tardigrad.tasks.module import ModuleTask
from tardigrad.tasks.quadratic import quadratic
from tardigrad.tasks.split import Data, Split
from tardigrad.tasks.task import SPLITS, Gradient, Task, Turn
from tardigrad.tasks.transformer import char_transformer

TASKS: dict[str, Callable[..., FunctionTask | ModuleTask]] = {
    "quadratic": quadratic,
    "logistic_regression": logistic_regression,
    "mnist_mlp": mnist_mlp,
    "mnist_cnn": mnist_cnn,
    "cifar10_resnet20": cifar10_resnet20,
    "cifar10_wideresnet16_4": cifar10_wideresnet16_4,
    "char_transformer": char_transformer,
}
"""Ready-made tasks by name; the first line of each one's docstring describes it."""

__all__ = [
    "SPLITS",
    "TASKS",
    "Data",
    "FunctionTask",
    "Gradient",
    "ModuleTask",
    "Split",
    "Task",
    "Turn",
    "char_transformer",
    "cifar10_resnet20",
    "cifar10_wideresnet16_4",
    "logistic_regression",
    "mnist_cnn",
    "mnist_mlp",
    "quadratic",
]
