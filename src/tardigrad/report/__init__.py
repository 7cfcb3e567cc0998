"""Tables and figures: functions of what run folders hold."""

from tardigrad.report.figures import draw
from tardigrad.report.perfetto import write_trace
from tardigrad.report.series import Series, load
from tardigrad.report.staleness import draw_staleness, rank_correlation
from tardigrad.report.tables import results_table
from tardigrad.report.timeline import draw_timeline

__all__ = [
    "Series",
    "draw",
    "draw_staleness",
    "draw_timeline",
    "load",
    "rank_correlation",
    "results_table",
    "write_trace",
]
