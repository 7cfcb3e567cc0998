"""The runtime on Ray: the simulator's policies and rules on real processes, recorded.

Ray is imported only when something of it is used, so that `import tardigrad` works without.
"""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tardigrad.protocol.coordinator import MembershipChange as Change
    from tardigrad.runtime.actor_pool import ActorPool
    from tardigrad.runtime.driver import Live
    from tardigrad.runtime.faults import fail_at
    from tardigrad.runtime.options import Processes, Scenario
    from tardigrad.runtime.ray_cluster import connected, local
    from tardigrad.runtime.training import train

__all__ = [
    "ActorPool",
    "Change",
    "Live",
    "Processes",
    "Scenario",
    "check_ray",
    "connected",
    "fail_at",
    "local",
    "train",
]

_HOMES = {
    "ActorPool": ("runtime.actor_pool", "ActorPool"),
    "Change": ("protocol.coordinator", "MembershipChange"),
    "Live": ("runtime.driver", "Live"),
    "Processes": ("runtime.options", "Processes"),
    "Scenario": ("runtime.options", "Scenario"),
    "connected": ("runtime.ray_cluster", "connected"),
    "fail_at": ("runtime.faults", "fail_at"),
    "local": ("runtime.ray_cluster", "local"),
    "train": ("runtime.training", "train"),
}
_RENAMED = {"Crew": "ActorPool"}


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        new = _RENAMED[name]
        warnings.warn(f"tardigrad.runtime.{name} is now {new}", DeprecationWarning, stacklevel=2)
        name = new
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    check_ray()
    module, attribute = _HOMES[name]
    return getattr(import_module(f"tardigrad.{module}"), attribute)


def check_ray() -> None:
    """Refuse by name to go on where Ray is not installed."""
    try:
        import_module("ray")
    except ImportError as error:
        raise ValueError(
            "this runs on Ray, which is not installed: pip install 'tardigrad[ray]'"
        ) from error
