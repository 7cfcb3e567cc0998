"""`tardigrad list`."""

import inspect
from typing import Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.cli.table import Table
from tardigrad.core.checks import one_of
from tardigrad.experiment.spec import CLUSTER, LINK, LOGGER, POLICY, RATE, RULE, TASK

LISTS = {
    "rules": RULE,
    "policies": POLICY,
    "clusters": CLUSTER,
    "links": LINK,
    "tasks": TASK,
    "rates": RATE,
    "loggers": LOGGER,
}


def show_list(
    what: Annotated[str, typer.Argument(metavar="|".join(LISTS), help="Which of them.")],
) -> None:
    """What a spec can name: each with its formula or what it does."""
    if what == "schedules":  # their name in 0.1
        tell("warning: learning rates are listed by tardigrad list rates")
        what = "rates"
    one_of("what to list", what, LISTS)
    rows = [(name, first_line(maker)) for name, maker in LISTS[what].makers.items()]
    out.print(Table((what, "what it does"), rows, headed=False))


def first_line(maker: object) -> str:
    return (inspect.getdoc(maker) or "").partition("\n")[0]
