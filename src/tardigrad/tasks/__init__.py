"""What is learned: tasks of one's own, and ready-made ones."""

from collections.abc import Callable
from typing import Any

from tardigrad.tasks.function import FunctionTask
from tardigrad.tasks.mnist import mnist_cnn, mnist_mlp
from tardigrad.tasks.module import ModuleTask
from tardigrad.tasks.quadratic import quadratic
from tardigrad.tasks.split import Data, Split
from tardigrad.tasks.task import Gradient, Task, Turn

TASKS: dict[str, Callable[..., Any]] = {
    make.__name__: make for make in (quadratic, mnist_mlp, mnist_cnn)
}
"""Ready-made tasks by name; the first line of each one's docstring describes it."""

__all__ = [
    "TASKS",
    "Data",
    "FunctionTask",
    "Gradient",
    "ModuleTask",
    "Split",
    "Task",
    "Turn",
    "mnist_cnn",
    "mnist_mlp",
    "quadratic",
]
