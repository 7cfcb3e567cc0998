"""Checks of arguments that say what to use instead."""


def at_least(field: str, value: float, low: float) -> None:
    if not value >= low:
        raise ValueError(f"{field} must be at least {low}, got {value}")
