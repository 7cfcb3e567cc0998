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
"""What code outside the package may have imported."""
REFUSED = {"plan": "planning", "schedule": "scheduling"}
"""Packages that are only pointed to: one of the old name would hide the function of that name, such
as `tardigrad.schedule`."""


class _Moved(MetaPathFinder, Loader):
    """Finds a moved module where it is now."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inner = name.partition(".")
        if package != "tardigrad":
            return None
        if inner in REFUSED:
            raise ModuleNotFoundError(f"{name} is now tardigrad.{REFUSED[inner]}", name=name)
        return ModuleSpec(name, self) if _now(inner) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        now = f"tardigrad.{_now(spec.name.partition('.')[2])}"
        warnings.warn(f"{spec.name} is now {now}", FutureWarning, stacklevel=2)
        module = importlib.import_module(now)
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has been executed under its own name, which it keeps."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _now(inner: str) -> str | None:
    """Where a module is now; those inside a package that moved are where it is."""
    first, dot, rest = inner.partition(".")
    return MOVED[first] + dot + rest if first in MOVED else None


def install() -> None:
    """Once per process; first, or else what is inside a package that moved is loaded twice."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())
