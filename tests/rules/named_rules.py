"""Rules by their names, with what each must be told: also for processes of Ray, which do not see
the examples."""

from typing import Any

from tardigrad import Rule
from tardigrad.rules import RULES

NEEDED: dict[str, dict[str, Any]] = {
    "exponential_penalty": {"rate": 0.1},
    "delay_adaptive": {"workers": 2},
    "pipemare": {"updates": 20},
    "delayed_nesterov": {"every": 3},
}
"""What rules must be told beside their rate."""


def made(name: str, lr: Any, **options: Any) -> Rule:
    """The rule of that name, with as little as it takes."""
    return RULES[name](lr, **NEEDED.get(name, {}), **options)
