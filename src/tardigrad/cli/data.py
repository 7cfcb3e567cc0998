"""`tardigrad data`."""

from typing import Annotated

import typer
from rich.table import Table

from tardigrad.cli.console import out, tell
from tardigrad.tasks import data as sets

data = typer.Typer(help="Data sets: fetched once, verified always.")


@data.command("list")
def list_sets() -> None:
    """The data sets, and which of them are here already."""
    table = Table(box=None)
    for title in ("name", "what", "MB", "here"):
        table.add_column(title, justify="right" if title == "MB" else "left")
    for row in sets.describe():
        size = f"{row.size_bytes / 1e6:.0f}"
        table.add_row(row.name, row.what, size, "yes" if row.cached else "no")
    out.print(table)
    out.print(f"in {sets.default_folder()}", markup=False)


@data.command()
def fetch(
    name: Annotated[str, typer.Argument(help="As in `tardigrad data list`.")],
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there.")] = False,
) -> None:
    """Fetch a data set into the cache and verify it."""
    path = sets.fetch(name, force=force, progress=tell)
    out.print(f"{name} is in {path}", markup=False)
