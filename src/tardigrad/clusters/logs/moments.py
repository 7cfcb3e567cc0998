"""Points in time, exactly."""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation

from tardigrad.clusters.logs.columns import Named
from tardigrad.core.checks import require

EPOCHS = (
    (Decimal("1e17"), Decimal("1e-9"), "nanoseconds"),
    (Decimal("1e14"), Decimal("1e-6"), "microseconds"),
    (Decimal("1e11"), Decimal("1e-3"), "milliseconds"),
)
"""Times since 1970 tell their unit by their size."""
LARGEST = Decimal("1e20")
NUMBER = re.compile(r"[-+]?[\d.]+(e[-+]?\d+)?", re.I)
SINCE = datetime(1970, 1, 1, tzinfo=UTC)


class Moments:
    """Reads the points in time of one log, which are all of one kind.

    They stay decimal until they are subtracted: nanoseconds since 1970 have more digits than a
    float. Dates are read to the microsecond.
    """

    def __init__(self, guesses: list[str]) -> None:
        self.guesses = guesses
        self.kind = ""

    def at_s(self, text: str, column: Named, where: str) -> Decimal:
        """Seconds since any fixed moment, of a number or a date."""
        if NUMBER.fullmatch(text):
            self._require_kind("a number", text, column, where)
            return self._counted_s(text, column, where)
        try:
            moment = datetime.fromisoformat(text.replace(",", "."))
        except ValueError:
            raise ValueError(
                f"{where}: {column.name} must be a number or a date such as "
                f"2024-05-31T12:00:00.5, got {text!r}"
            ) from None
        with_or_without = "with" if moment.tzinfo else "without"
        self._require_kind(f"a date {with_or_without} a time zone", text, column, where)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return Decimal((moment - SINCE) // timedelta(microseconds=1)).scaleb(-6)

    def _counted_s(self, text: str, column: Named, where: str) -> Decimal:
        value = _decimal(text, column, where)
        if column.unit_s is not None:
            return value * Decimal(repr(column.unit_s))
        for least, unit_s, word in EPOCHS:
            if value >= least:
                self.guesses.append(f"{column.name} is in {word} since 1970")
                return value * unit_s
        self.guesses.append(f"{column.name} is in seconds")
        return value

    def _require_kind(self, kind: str, text: str, column: Named, where: str) -> None:
        self.kind = self.kind or kind
        require(
            kind == self.kind,
            f"{where}: {text} in {column.name} is {kind}, and before it stands {self.kind}: write "
            "all points in time alike, such as 2024-05-31T12:00:00.5+00:00",
        )


def _decimal(text: str, column: Named, where: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{where}: {column.name} must be a number, got {text!r}") from None
    require(abs(value) < LARGEST, f"{where}: {text} in {column.name} is no point in time")
    return value
