"""How late gradients are at each stage of a pipeline, or at each shard."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from tardigrad.report.figures import COLOURS, save_figure
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.analysis import delays_at


def draw_stage_delays(schedule: Schedule, path: str | Path, title: str = "") -> list[float]:
    """A bar for the mean delay of every shard, and a mark for the largest; returns the means."""
    delays = [delays_at(schedule, shard) for shard in range(schedule.shards)]
    mean = [float(np.mean(each)) for each in delays]
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    stage = np.arange(schedule.shards)
    axes.bar(stage, mean, color=COLOURS[0], width=0.7, label="mean")
    largest = [int(np.max(each)) for each in delays]
    axes.plot(stage, largest, "_", color=COLOURS[1], markersize=18, label="largest")
    axes.set_xlabel("stage (0 = where data come in)")
    axes.set_ylabel("delay (updates)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title(title or f"Delay by stage, {schedule.shards} stages", loc="left", fontsize=11)
    save_figure(figure, path)
    return mean
