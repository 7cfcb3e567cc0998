"""`tardigrad claims`."""

from pathlib import Path
from typing import Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.cli.show import show
from tardigrad.core.checks import require
from tardigrad.reproduce import ledger
from tardigrad.reproduce.claims import ledger_table
from tardigrad.reproduce.results_page import markdown_table, write_ledger


def claims(
    results: Annotated[
        Path, typer.Option("--results", help="Where `tardigrad reproduce` keeps its cells.")
    ] = Path("results"),
    csv: Annotated[Path | None, typer.Option("--csv", help="Write the table there.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table in Markdown.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="Write it into README.md of the results.")
    ] = False,
) -> None:
    """The papers' claims, one by one: published, ours, the verdict, and the command that tests it.

    Verdicts are computed from the cells that are there. Where the full form does not decide a
    claim, the quick form does, and the table says so; empty cells are told as empty.
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
        show(table)
