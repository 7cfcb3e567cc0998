"""`tardigrad data`."""

from typing import Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.core.text_table import TextTable
from tardigrad.tasks import data as sets

data = typer.Typer(
    help="List and fetch data sets, which are always verified.",
    add_completion=False,
    no_args_is_help=True,
)


@data.command("list")
def list_sets() -> None:
    """List the data sets, and say which of them are here already."""
    rows = [
        (row.name, row.what, f"{row.size_bytes / 1e6:.0f}", "yes" if row.cached else "no")
        for row in sets.describe()
    ]
    out.print(TextTable(("name", "what", "MB", "here"), rows))
    out.print(f"in {sets.default_folder()}")


@data.command()
def fetch(
    name: Annotated[str, typer.Argument(help="As in `tardigrad data list`.")],
    force: Annotated[bool, typer.Option("--force", help="Fetch again what is there.")] = False,
) -> None:
    """Fetch a data set into the cache and verify it."""
    path = sets.fetch(name, force=force, progress=tell)
    out.print(f"{name} is in {path}")
