"""`tardigrad list`."""

import inspect
from typing import Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.core.checks import one_of
from tardigrad.core.text_table import TextTable, wrapped
from tardigrad.experiment.described import Description, described
from tardigrad.experiment.spec import CLUSTER, LINK, LOGGER, POLICY, RATE, RULE, STRUCTURE, TASK

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
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Tell all about this one, or FILE.py:NAME of yours."),
    ] = None,
) -> None:
    """What a spec can name: each with its formula or what it does; of one, every argument."""
    if what == "schedules":  # their name in 0.1
        tell("warning: learning rates are listed by tardigrad list rates")
        what = "rates"
    one_of("what to list", what, LISTS)
    if name is not None:
        show_one(described(STRUCTURE, LISTS[what], name))
        return
    rows = [(name, first_line(maker)) for name, maker in LISTS[what].makers.items()]
    out.print(TextTable((what, "what it does"), rows, headed=False))


def show_one(found: Description) -> None:
    """Signature, formula and paper, and what each argument takes and means."""
    edge = out.width if out.is_terminal else None
    for paragraph in (found.signature, *found.text.splitlines()):
        for line in wrapped(paragraph, edge) or [""]:
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    rows = [(a.name, a.takes, a.default or "must be given", a.meaning) for a in found.arguments]
    if rows:
        out.print()
        out.print(TextTable(("argument", "takes", "default", "meaning"), rows))


def first_line(maker: object) -> str:
    return (inspect.getdoc(maker) or "").partition("\n")[0]
