"""How much memory the machine has."""

import os

UNKNOWN = 1 << 40
"""As much as any machine may have."""


def physical_bytes() -> int:
    """Of this machine; `UNKNOWN` where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return UNKNOWN
