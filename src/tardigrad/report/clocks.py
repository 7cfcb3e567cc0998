"""What a run's time counts: virtual seconds, measured ones, or events where there is no clock."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple


class ClockLabel(NamedTuple):
    time: str
    unit: str

    @property
    def label(self) -> str:
        """For the axis of a figure."""
        return f"{self.time} ({self.unit})"


CLOCKS = {
    "virtual": ClockLabel("virtual time", "s"),
    "measured": ClockLabel("measured time", "s"),
    "events": ClockLabel("time", "events"),
}
MIXED = ClockLabel("time", "s or events")


def clock_of(summaries: Iterable[Mapping[str, Any]]) -> ClockLabel:
    """The clock that these runs share."""
    names = {_name(summary) for summary in summaries}
    return CLOCKS[names.pop()] if len(names) == 1 else MIXED


def time_text(value: float) -> str:
    """Four digits, or all before the point: a run may take a millisecond or a month."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def tick_text(value: float) -> str:
    """A number on an axis, without the last bits of the arithmetic that placed it."""
    return f"{value:,.12g}"


def _name(summary: Mapping[str, Any]) -> str:
    if "clock" in summary:
        return str(summary["clock"])
    if summary.get("clockless"):  # so folders of 0.1 say it
        return "events"
    return "measured" if summary.get("on") == "ray" else "virtual"
