"""Checks of what users give: each error names the field, what is wrong and what would be right."""

import difflib
import math
from collections.abc import Iterable

BITS = 128
"""Whole numbers that count something have fewer bits."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def of_kind(
    field: str, value: object, kinds: type | tuple[type, ...], called: str, example: str
) -> None:
    """Refuse what is of another kind, such as a name or a class where an object belongs."""
    if isinstance(value, kinds):
        return
    got = repr(value)
    if isinstance(value, type):
        got = f"the class {value.__name__}: write {value.__name__}(…), with its arguments"
    raise ValueError(f"{field} must be {called} such as {example}, got {got}")


def number(field: str, value: object) -> float:
    """A finite real number (bool is not one)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:  # of a whole number
            raise _too_large(field, int(value)) from None
        if math.isfinite(found):
            return found
    raise ValueError(f"{field} must be a finite number, got {value!r}")


def positive(field: str, value: object) -> None:
    if number(field, value) <= 0:
        raise ValueError(f"{field} must be greater than 0, got {value!r}")


def not_negative(field: str, value: object) -> None:
    if number(field, value) < 0:
        raise ValueError(f"{field} must not be negative, got {value!r}")


def fraction(field: str, value: object) -> None:
    """In [0, 1), as decays are."""
    if not 0 <= number(field, value) < 1:
        raise ValueError(f"{field} must be in [0, 1), got {value!r}")


def count(field: str, value: object, least: int = 1) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{field} must be a whole number of at least {least}, got {value!r}")
    if value.bit_length() > BITS:
        raise _too_large(field, value)


def _too_large(field: str, value: int) -> ValueError:
    digits = round(value.bit_length() * math.log10(2))  # Python does not write very long ones
    return ValueError(f"{field} is too large: it has about {digits} digits; give a smaller number")


def one_of(field: str, value: object, choices: Iterable[object]) -> None:
    options = list(choices)
    if value not in options:
        known = ", ".join(repr(o) for o in options)
        raise ValueError(f"{field} must be one of {known}, got {value!r}{nearest(value, options)}")


def name_patterns(field: str, value: object) -> tuple[str, ...]:
    """Patterns of names; one alone would be taken letter by letter."""
    good = isinstance(value, tuple | list) and all(isinstance(item, str) for item in value)
    require(good, f'{field} must be a list of patterns such as ["*bias"], got {value!r}')
    return tuple(value)  # type: ignore[arg-type]


def nearest(name: object, known: Iterable[object]) -> str:
    """`; did you mean 'x'?` where a known name is near, else nothing."""
    close = difflib.get_close_matches(str(name), [str(k) for k in known], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
