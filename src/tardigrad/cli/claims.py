"""`tardigrad claims`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.core.checks import require
from tardigrad.core.text_table import wrapped
from tardigrad.reproduce import ledger
from tardigrad.reproduce.claims import LedgerRow, ledger_table
from tardigrad.reproduce.results_page import markdown_table, write_ledger


def claims(
    results: Annotated[
        Path, typer.Option("--results", help="Where `tardigrad reproduce` keeps its cells.")
    ] = Path("results"),
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the table to this file.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table in Markdown.")
    ] = False,
    write: Annotated[
        bool,
        typer.Option("--write", help="Write it into README.md of the results and of the project."),
    ] = False,
) -> None:
    """Show the papers' claims: published, ours, the verdict, and the command that tests each.

    Verdicts are computed from the cells that are there. Where the full form does not decide a
    claim, the quick form does, and the table says so. Cells that are missing are named.
    """
    require(
        results.is_dir() or not write,
        f"there is no folder {results}: run this where results are, or give --results FOLDER",
    )
    if not results.is_dir():
        tell(f"there is no folder {results}, so nothing is measured yet")
    rows = ledger(results)
    if write:
        out.print(f"written: {write_ledger(results, rows)}")
        return
    table = ledger_table(rows)
    if csv is not None:
        table.save_csv(csv)
        out.print(f"table: {csv}")
    elif markdown:
        print(markdown_table(rows))
    else:
        _show(rows)
        out.print(table.notes[0])


COLOURS = {"holds": "green", "holds with a choice": "green", "does not hold": "red"}
INDENT = 5


def _show(rows: Sequence[LedgerRow]) -> None:
    """A block a claim: eight columns would be a few words wide each."""
    paper = ""
    for row in rows:
        claim, verdict = row.claim, row.verdict
        if claim.paper != paper:
            paper = claim.paper
            out.print(f"{paper}\n", style="bold")
        out.print(f"{claim.id:<{INDENT}}", end="", style="bold")
        _lines(claim.says, first="")
        _lines(verdict.text, style=COLOURS.get(verdict.kind, "yellow"))
        _lines(f"published: {claim.published}")
        if verdict.ours:
            _lines(f"ours: {verdict.ours}")
        if row.command:
            by = ", ".join(part for part in (row.form, row.there) if part)
            _lines(f"{row.command}   ({by})", style="dim")
        out.print()


def _lines(text: str, first: str = " " * INDENT, style: str | None = None) -> None:
    width = (out.width if out.is_terminal else 100) - INDENT
    for number, line in enumerate(wrapped(text, width)):
        out.print(f"{' ' * INDENT if number else first}{line}", style=style)
