"""Tables and figures: functions of what run folders hold."""

from tardigrad.report.comparison import Comparison
from tardigrad.report.differences import PairedDifference
from tardigrad.report.figures import draw, save_figure
from tardigrad.report.perfetto import write_trace
from tardigrad.report.results import ENDINGS, Results, check_ending, value_text
from tardigrad.report.run_figure import plot_run
from tardigrad.report.series import Series, load_series
from tardigrad.report.stages import draw_stage_delays
from tardigrad.report.staleness import draw_staleness, rank_correlation
from tardigrad.report.sweep import Sweep
from tardigrad.report.tables import results_table
from tardigrad.report.timeline import draw_timeline, draw_timelines
from tardigrad.report.titles import title_from, title_of

__all__ = [
    "ENDINGS",
    "Comparison",
    "PairedDifference",
    "Results",
    "Series",
    "Sweep",
    "check_ending",
    "draw",
    "draw_stage_delays",
    "draw_staleness",
    "draw_timeline",
    "draw_timelines",
    "load_series",
    "plot_run",
    "rank_correlation",
    "results_table",
    "save_figure",
    "title_from",
    "title_of",
    "value_text",
    "write_trace",
]
