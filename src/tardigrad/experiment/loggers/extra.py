"""Packages that are installed by those who use them."""

from importlib import import_module
from typing import Any


def extra(module: str, name: str) -> Any:
    """The module of the extra of this name; refused in one line where it is not installed."""
    try:
        return import_module(module)
    except ImportError as error:
        raise ValueError(
            f"log: {name} is not installed here ({error}): pip install 'tardigrad[{name}]'"
        ) from error


def flat(data: Any, path: str = "") -> dict[str, Any]:
    """Nested tables as one, by dotted keys."""
    if not isinstance(data, dict):
        return {path: data}
    out: dict[str, Any] = {}
    for key, value in data.items():
        out |= flat(value, f"{path}.{key}" if path else str(key))
    return out


def numbers(record: Any) -> dict[str, float]:
    """What an evaluation measured, without its place."""
    return {name: float(value) for name, value in record.items() if name != "update"}
