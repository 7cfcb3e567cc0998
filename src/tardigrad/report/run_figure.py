"""One run as a figure: what `run.plot()` returns and a notebook shows."""

import base64
import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from tardigrad.core.checks import one_of, require
from tardigrad.engine import Run
from tardigrad.engine.result_files import rule_label, summarise, task_label
from tardigrad.report.clocks import clock_of
from tardigrad.report.figures import DPI, loss_figure
from tardigrad.report.series import Series, metric_of
from tardigrad.report.titles import made_title

AXES = {"time": "time_s", "update": "update"}
SHOWN = 2000
"""Batch losses in a figure; of more, means over as many stretches."""


def plot_run(
    run: Run, path: str | Path | None = None, by: Literal["time", "update"] = "time"
) -> Figure:
    """The loss against time or updates; without evaluations, that of the batches."""
    one_of("by", by, AXES)
    figure = _figure(run, by)
    require(
        figure is not None,
        "there is nothing to plot: the run has no evaluations and its task gives no batch loss",
    )
    assert figure is not None
    if path is not None:
        known = figure.canvas.get_supported_filetypes()
        ending = Path(path).suffix.removeprefix(".")
        require(
            ending in known,
            f"{path} does not say as what to write the figure: end it in .png, .pdf or .svg",
        )
        figure.savefig(path, dpi=DPI)
    return figure


def run_image(run: Run) -> str:
    """The figure as an HTML image that needs no file; empty where there is nothing to plot."""
    figure = _figure(run, "time")
    if figure is None:
        return ""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=70)
    picture = base64.b64encode(data.getvalue()).decode()
    return f'<img alt="loss against time" src="data:image/png;base64,{picture}">'


def _figure(run: Run, by: str) -> Figure | None:
    records = run.history.records or _batch_records(run)
    summary = summarise(run, 0.0)
    series = [Series(rule_label(run.rule), [records], [summary])]
    metric = metric_of(series) if records else None
    if metric is None:
        return None
    clock = clock_of([summary])
    label = clock.label if by == "time" else "updates"
    return loss_figure(series, metric, AXES[by], label, run_title(run))


def _batch_records(run: Run) -> list[dict[str, Any]]:
    """The batch losses as if they had been evaluated; none where all are 0, of a task without."""
    losses, schedule = np.asarray(run.history.loss), run.schedule
    times = schedule.group_time_s[schedule.group_shard == 0][: len(losses)]
    losses = losses[: len(times)]
    if not losses.any():
        return []
    ends = np.unique(np.linspace(0, len(losses), min(len(losses), SHOWN) + 1).astype(int))[1:]
    means = np.add.reduceat(losses, np.concatenate([[0], ends[:-1]])) / np.diff(ends, prepend=0)
    return [
        {"update": int(end), "time_s": float(times[end - 1]), "batch_loss": float(mean)}
        for end, mean in zip(ends, means, strict=True)
    ]


def run_title(run: Run) -> str:
    """As `title_of` says it of a folder: task, workers and what gave them their times, policy."""
    about = run.schedule.about
    cluster, policy = (str(about.get(part, {}).get("name", "")) for part in ("cluster", "policy"))
    return made_title(task_label(run.task), run.schedule.workers, cluster, policy)
