"""Parts of a run that users give, refused by name where they are of another kind."""

from tardigrad.core.checks import of_kind
from tardigrad.engine.options import Checkpoints, Limits
from tardigrad.engine.stop import Stop
from tardigrad.rules import Rule
from tardigrad.scheduling import given
from tardigrad.tasks import ModuleTask, Task

KINDS: dict[str, tuple[type, str, str]] = given.KINDS | {
    "stop": (Stop, "a tg.Stop", "tg.Stop(loss=0.5)"),
    "checkpoints": (Checkpoints, "a tg.Checkpoints", 'tg.Checkpoints("runs/first")'),
    "limits": (Limits, "a tg.Limits", "tg.Limits(memory_gib=4)"),
}


def check_parts(**parts: object) -> None:
    """Each by its name; None where it was left out."""
    given.check_given(KINDS, **parts)


def check_learned(task: Task, rule: Rule) -> None:
    """What nothing can be left out of: what is learned, and how."""
    if isinstance(task, type) or not (hasattr(task, "gradient") and hasattr(task, "start")):
        called = "a tg.Task"
        of_kind("task", task, ModuleTask, called, "tg.ModuleTask(model, loss, (inputs, targets))")
    of_kind("rule", rule, Rule, "a tg.Rule", "tg.rules.sgd(0.1)")
