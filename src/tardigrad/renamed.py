"""Modules of version 0.1 under their old names, with a warning, for one release."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

MOVED = {
    "checks": "core.checks",
    "folder": "recording.folder",
    "keys": "core.keys",
    "layout": "core.layout",
    "schedules": "rules.rates",
    "spec": "experiment",
    "tensors": "core.trees",
}
"""What code outside the package may have imported. `schedule` is not among them: a package of that
name would hide the function `tardigrad.schedule`."""


class _Moved(MetaPathFinder, Loader):
    """Finds a moved module where it is now."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inner = name.partition(".")
        if package != "tardigrad":
            return None
        if inner == "schedule":
            raise ModuleNotFoundError(f"{name} is now tardigrad.scheduling", name=name)
        return ModuleSpec(name, self) if inner in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now = f"tardigrad.{MOVED[spec.name.partition('.')[2]]}"
        warnings.warn(f"{spec.name} is now {now}", FutureWarning, stacklevel=4)
        return importlib.import_module(now)

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed under its own name."""


def install() -> None:
    """Once per process."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.append(_Moved())
