"""Tables and figures: functions of what run folders hold."""

from tardigrad.report.figures import draw
from tardigrad.report.series import Series, load
from tardigrad.report.tables import results_table

__all__ = ["Series", "draw", "load", "results_table"]
