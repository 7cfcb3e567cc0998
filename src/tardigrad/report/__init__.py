"""Tables and figures: functions of what run folders hold."""

from tardigrad.report.figures import draw
from tardigrad.report.perfetto import write_trace
from tardigrad.report.series import Series, load
from tardigrad.report.tables import results_table
from tardigrad.report.timeline import draw_timeline

__all__ = ["Series", "draw", "draw_timeline", "load", "results_table", "write_trace"]
