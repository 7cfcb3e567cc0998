"""`tardigrad report`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tardigrad import report as reports
from tardigrad.cli.console import out
from tardigrad.cli.show import show
from tardigrad.core.checks import number, require
from tardigrad.recording.folder import RunFolder
from tardigrad.report import page as pages

TRACED = 10_000
"""How many updates go into a trace file: some megabytes, which Perfetto opens at once."""
TIMELINE = "timeline.png"
KINDS = {".json": "trace", ".html": "page"}


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="A run's or comparison's folder; with --html several."),
    ],
    html: Annotated[
        bool,
        typer.Option(
            "--html", help="Write a page to look at and to send: timeline, player and curves."
        ),
    ] = False,
    target: Annotated[
        float | None, typer.Option("--target", help="Also show when the loss came down to this.")
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline", help="Of a comparison: the rule to compare others with [the first]."
        ),
    ] = None,
    to: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            help="Of a comparison or sweep: also a .pdf, .svg, .png, .csv or .tex. With --html: "
            "the page [report.html in the first folder].",
        ),
    ] = None,
) -> None:
    """Print a folder's table and draw its figures again, from what is in it.

    **tardigrad report --html SYNC ASYNC** puts two runs on one clock, the first above the second.
    """
    if target is not None:
        number("target", target)
    if html:
        require(baseline is None, "a page has no baseline: leave --baseline out")
        _page(runs, target, to or ())
        return
    require(len(runs) == 1, "several runs stand side by side on a page: add --html")
    (run,) = runs
    for path in to or ():
        reports.check_ending(path)
    found = reports.Sweep.load(run) or reports.Comparison.load(run, baseline)
    if found is not None:
        require(
            baseline is None or isinstance(found, reports.Comparison),
            f"{run} holds a sweep, which has no baseline: leave --baseline out",
        )
        show_results(found, run, target, to or ())
        return
    require(
        not to and baseline is None,
        f"{run} holds a single run: --out and --baseline are for comparisons; its figures are "
        "drawn into its folder",
    )
    show_run(run, target)


def _page(runs: Sequence[Path], target: float | None, to: Sequence[Path]) -> None:
    require(len(to) < 2, "there is one page: give one --out, or none")
    shown = pages.runs_in(*runs)
    made = pages.write_page(shown, to[0] if to else runs[0] / pages.PAGE)
    show(reports.results_table([one.series for one in shown], target))
    for sentence in pages.notices(shown):
        out.print(sentence)
    out.print(f"page: {made}")


def show_results(
    found: reports.Results, folder: Path, target: float | None, files: Sequence[Path] = ()
) -> None:
    """Figures into the folder, what was asked for into files, tables and names onto the screen."""
    made = found.save(folder / f"{found.NAME}.png")
    if isinstance(found, reports.Comparison):
        made = [*reports.draw(found.series, folder, found.title), *made]
        if found.schedules:
            made.append(found.plot_timelines(folder / TIMELINE))
    for table in found.tables(target):
        show(table)
    for figure in made:
        out.print(f"figure: {figure}")
    (numbers,) = found.save(folder / f"{found.NAME}.csv", target)
    out.print(f"table: {numbers}")
    for file in files:
        found.save(file, target)
        out.print(f"{'table' if file.suffix in ('.csv', '.tex') else 'figure'}: {file}")


def show_run(path: Path, target: float | None = None) -> None:
    """Figures into the folder, the table and their names onto the screen."""
    series = reports.load_series(path)
    title = reports.title_of(path)
    drawn = [*reports.draw(series, path, title), *_timeline(path), *_staleness(path)]
    drawn.append(pages.write_page(pages.runs_in(path), path / pages.PAGE))
    show(reports.results_table(series, target))
    for figure in drawn:
        out.print(f"{KINDS.get(figure.suffix, 'figure')}: {figure}")


def _timeline(path: Path) -> list[Path]:
    """Who computed, waited and was dropped."""
    made = RunFolder.open(path).executed()
    if made is None:
        return []
    picture, trace = path / TIMELINE, path / "timeline.perfetto.json"
    reports.draw_timeline(made, picture, title=reports.title_of(path))
    reports.write_trace(made, trace, updates=min(made.groups, TRACED))
    return [picture, trace]


def _staleness(path: Path) -> list[Path]:
    """Delay, gap and B-staleness beside each other, where the run measured them."""
    picture = path / "staleness.png"
    measured = RunFolder.open(path).gradients()
    return [picture] if reports.draw_staleness(measured, picture, reports.title_of(path)) else []
