"""Results as a table."""

import math
import statistics
from collections.abc import Callable, Sequence

from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.report.clocks import ClockLabel, clock_of, time_text
from tardigrad.report.series import Series, metric_of

Column = Callable[[Series], Cell]


def results_table(series: Sequence[Series], target: float | None = None) -> ResultTable:
    """One line per label: final loss and accuracy, time and delay; mean ± standard deviation.

    `target`: also the time at which the loss first came down to it.
    """
    columns: dict[str, Column] = {"rule": lambda one: one.label + note_of(one)}
    columns |= judged_columns(series, target) | took_columns(series)
    columns["mean delay"] = lambda one: f"{one.mean_delay:.2f}"
    if any(fact["dropped"] for one in series for fact in one.summaries):
        columns["dropped"] = lambda one: f"{one.mean('dropped'):,.0f}"
    return ResultTable(
        title=", ".join([judged_by(metric_of(series)), clock(series).time, *spread_words(series)]),
        columns=tuple(columns),
        rows=tuple(tuple(cell(one) for cell in columns.values()) for one in series),
    )


def judged_columns(
    series: Sequence[Series], target: float | None, best: bool = False
) -> dict[str, Column]:
    """Final loss and accuracy; the `best` they have been; when the loss came down to the target."""
    loss, accuracy = metric_of(series, "loss"), metric_of(series, "accuracy")
    columns: dict[str, Column] = {}
    if loss:
        columns["loss"] = lambda one: _spread(one.final(loss), _number) or lost_words(one)
        if best:
            columns["best loss"] = lambda one: _spread(one.best(loss), _number)
    if accuracy:
        columns["accuracy"] = lambda one: _spread(one.final(accuracy), _share) or "–"
        if best:
            columns["best accuracy"] = lambda one: _spread(one.best(accuracy), _share)
    if loss and target is not None:
        name = f"to {target:g} ({clock(series).unit})"
        columns[name] = lambda one: _reached(one.first_below(loss, target))
    return columns


def took_columns(series: Sequence[Series]) -> dict[str, Column]:
    """What it took to get there: updates, gradients where they are not the same, time."""
    facts = [summary for one in series for summary in one.summaries]
    columns: dict[str, Column] = {"updates": lambda one: f"{one.mean('updates'):,.0f}"}
    if any(fact.get("gradients", fact["updates"]) != fact["updates"] for fact in facts):
        columns["gradients"] = lambda one: f"{one.mean('gradients'):,.0f}"
    columns[f"time ({clock(series).unit})"] = lambda one: time_text(one.mean("time_s"))
    return columns


def clock(series: Sequence[Series]) -> ClockLabel:
    return clock_of(summary for one in series for summary in one.summaries)


def judged_by(loss: str | None) -> str:
    """What the losses of a table were measured on."""
    split = (loss or "").partition("_")[0]
    return {"": "no evaluation", "batch": "mean over the last batches"}.get(split, f"{split} set")


def spread_words(series: Sequence[Series], sign: str = "±") -> list[str]:
    """What stands behind a ±, or is a band, and of how many runs; nothing for single ones."""
    most = max((len(one.summaries) for one in series), default=0)
    return [f"mean {sign} standard deviation over {most} seeds"] if most > 1 else []


def note_of(one: Series) -> str:
    """How many of its runs have diverged; nothing where none has."""
    if not one.diverged:
        return ""
    if one.diverged == len(one.summaries):
        return " (diverged)"
    return f" ({one.diverged} of {len(one.summaries)} diverged)"


def _number(value: float) -> str:
    return f"{value:.4g}"


def _share(value: float) -> str:
    return f"{value:.2%}"


def lost_words(one: Series) -> str:
    """In the place of a loss that there is not."""
    if not one.diverged:
        return ""
    if len(one.summaries) > 1 or "at" not in one.summaries[0]:
        return "diverged"
    return f"diverged at update {one.summaries[0]['at']:,}"


def _spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Mean ± standard deviation over seeds (of the sample), or the one value; a mean alone where a
    value is infinite or no number."""
    if not values:
        return ""
    mean = text(statistics.fmean(values))
    if len(values) == 1 or not all(map(math.isfinite, values)):
        return mean
    return f"{mean} ± {text(statistics.stdev(values))}"


def _reached(times: Sequence[float | None]) -> str:
    reached = [time for time in times if time is not None]
    if not reached:
        return "–"
    text = _spread(reached, time_text)
    return text if len(reached) == len(times) else f"{text} ({len(reached)} of {len(times)})"
