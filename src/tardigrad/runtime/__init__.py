"""The runtime on Ray: the simulator's policies and rules on real processes, recorded.

The only room that imports Ray, and only when something of it is used, so that `import tardigrad`
works without.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tardigrad.runtime.crew import Crew
    from tardigrad.runtime.driver import Live
    from tardigrad.runtime.faults import fail_at
    from tardigrad.runtime.ray_cluster import connected, local
    from tardigrad.runtime.replaying import Replayed, replay
    from tardigrad.runtime.round_trips import WAYS, rates
    from tardigrad.runtime.to_target import seconds_of_ddp, seconds_of_train
    from tardigrad.runtime.training import read_record, train

__all__ = [
    "WAYS",
    "Change",
    "Crew",
    "Live",
    "Replayed",
    "connected",
    "fail_at",
    "local",
    "rates",
    "read_record",
    "replay",
    "seconds_of_ddp",
    "seconds_of_train",
    "train",
]

_HOMES = {
    "Change": "membership",
    "Crew": "crew",
    "Live": "driver",
    "Replayed": "replaying",
    "WAYS": "round_trips",
    "connected": "ray_cluster",
    "fail_at": "faults",
    "local": "ray_cluster",
    "rates": "round_trips",
    "read_record": "training",
    "replay": "replaying",
    "seconds_of_ddp": "to_target",
    "seconds_of_train": "to_target",
    "train": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import_module("ray")
    except ImportError as error:
        raise ValueError(
            "this runs on Ray, which is not installed: pip install 'tardigrad[ray]'"
        ) from error
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
