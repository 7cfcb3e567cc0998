"""What crosses the wire, and how many bytes; one link a file."""

from tardigrad.links.bandwidth import BandwidthAware
from tardigrad.links.budget import Budget
from tardigrad.links.every import Every
from tardigrad.links.full import Full
from tardigrad.links.link import UNSENT, Gate, Link

LINKS: dict[str, type[Link]] = {
    "full": Full,
    "every": Every,
    "bandwidth_aware": BandwidthAware,
    "budget": Budget,
}

__all__ = ["LINKS", "UNSENT", "BandwidthAware", "Budget", "Every", "Full", "Gate", "Link"]
