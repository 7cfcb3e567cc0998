"""`tardigrad list`."""

import inspect
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tardigrad.checks import one_of
from tardigrad.cli.console import out
from tardigrad.spec.spec import CLUSTER, LINK, POLICY, RATE, RULE, TASK

LISTS = {
    "rules": RULE,
    "policies": POLICY,
    "clusters": CLUSTER,
    "links": LINK,
    "tasks": TASK,
    "schedules": RATE,
}


def show_list(
    what: Annotated[str, typer.Argument(metavar="|".join(LISTS), help="Which of them.")],
) -> None:
    """What a spec can name: each with its formula or what it does."""
    one_of("what to list", what, LISTS)
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, maker in LISTS[what].makers.items():
        table.add_row(name, Text(first_line(maker)))
    out.print(table)


def first_line(maker: object) -> str:
    return (inspect.getdoc(maker) or "").partition("\n")[0]
