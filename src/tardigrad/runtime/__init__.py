"""The runtime on Ray: the simulator's policies and rules on real processes, recorded.

Ray is imported only when something of it is used, so that `import tardigrad` works without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tardigrad.runtime.crew import Crew
    from tardigrad.runtime.driver import Live
    from tardigrad.runtime.faults import fail_at
    from tardigrad.runtime.membership import Change
    from tardigrad.runtime.options import Processes, Scenario
    from tardigrad.runtime.ray_cluster import connected, local
    from tardigrad.runtime.replaying import Replayed, replay
    from tardigrad.runtime.training import read_record, train

__all__ = [
    "Change",
    "Crew",
    "Live",
    "Processes",
    "Replayed",
    "Scenario",
    "check_ray",
    "connected",
    "fail_at",
    "local",
    "read_record",
    "replay",
    "train",
]

_HOMES = {
    "Change": "membership",
    "Crew": "crew",
    "Live": "driver",
    "Processes": "options",
    "Replayed": "replaying",
    "Scenario": "options",
    "connected": "ray_cluster",
    "fail_at": "faults",
    "local": "ray_cluster",
    "read_record": "training",
    "replay": "replaying",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_ray()
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def check_ray() -> None:
    """Refuse by name to go on where Ray is not installed."""
    try:
        import_module("ray")
    except ImportError as error:
        raise ValueError(
            "this runs on Ray, which is not installed: pip install 'tardigrad[ray]'"
        ) from error
