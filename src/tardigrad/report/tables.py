"""Results as a table."""

import statistics
from collections.abc import Callable, Sequence

from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.report.clocks import clock_of, time_text
from tardigrad.report.series import Series, metric_of


def results_table(series: Sequence[Series], target: float | None = None) -> ResultTable:
    """One line per label: final loss and accuracy, time and delay; mean ± standard deviation.

    `target`: also the time at which the loss first came down to it.
    """
    loss, accuracy = metric_of(series, "loss"), metric_of(series, "accuracy")
    facts = [summary for one in series for summary in one.summaries]
    clock = clock_of(facts)
    columns: dict[str, Callable[[Series], Cell]] = {"rule": lambda one: one.label + _note(one)}
    if loss:
        columns["loss"] = lambda one: _spread(one.final(loss), "{:.4g}".format) or "diverged"
    if accuracy:
        columns["accuracy"] = lambda one: _spread(one.final(accuracy), "{:.2%}".format) or "–"
    if loss and target is not None:
        columns[f"to {target:g} ({clock.unit})"] = lambda one: _reached(
            one.first_below(loss, target)
        )
    columns["updates"] = lambda one: f"{one.mean('updates'):,.0f}"
    if any(fact.get("gradients", fact["updates"]) != fact["updates"] for fact in facts):
        columns["gradients"] = lambda one: f"{one.mean('gradients'):,.0f}"
    columns[f"time ({clock.unit})"] = lambda one: time_text(one.mean("time_s"))
    columns["mean delay"] = lambda one: f"{one.mean_delay:.2f}"
    if any(fact["dropped"] for fact in facts):
        columns["dropped"] = lambda one: f"{one.mean('dropped'):,.0f}"
    return ResultTable(
        title=f"{judged_by(loss)}, {clock.time}",
        columns=tuple(columns),
        rows=tuple(tuple(cell(one) for cell in columns.values()) for one in series),
    )


def judged_by(loss: str | None) -> str:
    """What the losses of a table were measured on."""
    split = (loss or "").partition("_")[0]
    return {"": "no evaluation", "batch": "mean over the last batches"}.get(split, f"{split} set")


def _note(one: Series) -> str:
    if not one.diverged:
        return ""
    if one.diverged == len(one.summaries):
        return " (diverged)"
    return f" ({one.diverged} of {len(one.summaries)} diverged)"


def _spread(values: Sequence[float], text: Callable[[float], str]) -> str:
    """Mean ± standard deviation over seeds (of the sample), or the one value."""
    if not values:
        return ""
    mean = text(statistics.fmean(values))
    return mean if len(values) == 1 else f"{mean} ± {text(statistics.stdev(values))}"


def _reached(times: Sequence[float | None]) -> str:
    reached = [time for time in times if time is not None]
    if not reached:
        return "–"
    text = _spread(reached, time_text)
    return text if len(reached) == len(times) else f"{text} ({len(reached)} of {len(times)})"
