"""Parts of a schedule that users give, refused by name where they are of another kind."""

from collections.abc import Mapping

from tardigrad.clusters import Cluster
from tardigrad.core.checks import of_kind
from tardigrad.links import Link
from tardigrad.policies import Policy

KINDS: dict[str, tuple[type, str, str]] = {
    "policy": (Policy, "a tg.Policy", "tg.Sync()"),
    "cluster": (Cluster, "a cluster", "tg.Gamma(workers=8)"),
    "link": (Link, "a tg.Link", "tg.Full(codec=tg.TopK(0.01))"),
}


def check_given(kinds: Mapping[str, tuple[type, str, str]] = KINDS, /, **given: object) -> None:
    """Each by its name; None where it was left out. Names without a kind are not looked at."""
    for name, value in given.items():
        if value is not None and name in kinds:
            of_kind(name, value, *kinds[name])
