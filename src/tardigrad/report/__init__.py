"""Tables and figures: functions of what run folders hold."""

from tardigrad.report.figures import draw
from tardigrad.report.perfetto import write_trace
from tardigrad.report.run_figure import made_title, plot_run
from tardigrad.report.series import Series, load_series
from tardigrad.report.staleness import draw_staleness, rank_correlation
from tardigrad.report.sweep import Sweep, sweep_table, value_text, write_csv
from tardigrad.report.sweep_figure import draw_sweep
from tardigrad.report.tables import results_table
from tardigrad.report.timeline import draw_timeline

__all__ = [
    "Series",
    "Sweep",
    "draw",
    "draw_staleness",
    "draw_sweep",
    "draw_timeline",
    "load_series",
    "made_title",
    "plot_run",
    "rank_correlation",
    "results_table",
    "sweep_table",
    "value_text",
    "write_csv",
    "write_trace",
]
