"""Results as a table."""

import statistics
from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from tardigrad.report.series import Series, metric_of


def results_table(series: Sequence[Series], target: float | None = None) -> Table:
    """One line per label: final loss and accuracy, time and delay; mean ± standard deviation.

    `target`: also the virtual time at which the loss first came down to it.
    """
    loss, accuracy = metric_of(series, "loss"), metric_of(series, "accuracy")
    unit = "events" if all(one.clockless for one in series) else "s"
    dropped = any(summary["dropped"] for one in series for summary in one.summaries)
    titles = ["updates", f"time ({unit})", "mean delay"]
    if loss and target is not None:
        titles.insert(0, f"to {target:g} ({unit})")
    titles = [*(["loss"] if loss else []), *(["accuracy"] if accuracy else []), *titles]
    longest = max(len(one.label) for one in series)
    table = Table(
        box=box.SIMPLE_HEAD,
        title=_title(loss),
        title_justify="left",
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    table.add_column("", overflow="fold", min_width=min(15, longest))
    for title in [*titles, *(["dropped"] if dropped else [])]:
        table.add_column(title, justify="right", no_wrap=True)
    for one in series:
        cells = [escape(one.label + _note(one))]
        if loss:
            cells.append(_spread(one.final(loss), "{:.4g}") or "diverged")
        if accuracy:
            cells.append(_spread(one.final(accuracy), "{:.2%}") or "–")
        if loss and target is not None:
            cells.append(_reached(one.first_below(loss, target)))
        facts = one.summaries
        cells.append(f"{statistics.fmean(s['updates'] for s in facts):,.0f}")
        cells.append(f"{statistics.fmean(s['time_s'] for s in facts):,.0f}")
        cells.append(f"{one.mean_delay:.2f}")
        if dropped:
            cells.append(f"{statistics.fmean(s['dropped'] for s in facts):,.0f}")
        table.add_row(*cells)
    return table


def _title(loss: str | None) -> str:
    split = (loss or "").partition("_")[0]
    return f"{'mean over the last batches' if split == 'batch' else split + ' set'}, virtual time"


def _note(one: Series) -> str:
    if not one.diverged:
        return ""
    if one.diverged == len(one.summaries):
        return " (diverged)"
    return f" ({one.diverged} of {len(one.summaries)} diverged)"


def _spread(values: Sequence[float], form: str) -> str:
    """Mean ± standard deviation over seeds (of the sample), or the one value."""
    if not values:
        return ""
    text = form.format(statistics.fmean(values))
    return text if len(values) == 1 else f"{text} ± {form.format(statistics.stdev(values))}"


def _reached(times: Sequence[float | None]) -> str:
    reached = [time for time in times if time is not None]
    if not reached:
        return "–"
    text = _spread(reached, "{:,.0f}")
    return text if len(reached) == len(times) else f"{text} ({len(reached)} of {len(times)})"
