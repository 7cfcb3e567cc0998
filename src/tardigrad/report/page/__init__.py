"""A run as a page that one can send: one file, without a server or a network."""

from tardigrad.report.page.contents import PageRun, run_shown, runs_in
from tardigrad.report.page.notices import notices
from tardigrad.report.page.write import PAGE, write_page, write_run_page

__all__ = [
    "PAGE",
    "PageRun",
    "notices",
    "run_shown",
    "runs_in",
    "write_page",
    "write_run_page",
]
