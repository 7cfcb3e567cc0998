"""Files that a user might have written, and a small spec to name them in."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tardigrad as tg

EXAMPLES = Path(__file__).parents[2] / "docs/examples"

RULE = '''
from dataclasses import dataclass
import tardigrad as tg
from tardigrad.rules import Correction, Nothing, Sgd, Signal

@dataclass(frozen=True)
class Power(Correction[Nothing, Nothing]):
    power: float = 0.5
    def correct(self, theta, state, own, push, now, layout):
        return Signal(push.grad / push.staleness**self.power, push.grad), own

def mine(lr, power: float = 0.5) -> tg.Rule:
    """v ← g / τ^power"""
    return tg.Rule(lr, Sgd(), Power(power))
'''


@contextmanager
def forgotten(folder: Path) -> Iterator[None]:
    """What the block imports from the folder is gone after it."""
    path = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if str(folder) in str(getattr(module, "__file__", None)):
                del sys.modules[name]


def write(name: str, *parts: str) -> Path:
    """A file in the working folder, of the parts with the last one first."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(reversed(parts)), encoding="utf-8")
    return path


def spec_of(**sections: Any) -> tg.Spec:
    """A small experiment with these sections in it."""
    base: dict[str, Any] = {
        "updates": 12,
        "task": {"name": "quadratic", "dimension": 4},
        "rule": {"name": "sgd", "lr": 0.1},
        "cluster": {"name": "gamma", "workers": 3},
    }
    return tg.Spec.of(base | sections)
