"""`tardigrad list`."""

from typing import TYPE_CHECKING, Annotated

import typer

from tardigrad.cli.console import out, tell
from tardigrad.cli.listed import LISTS
from tardigrad.core.checks import one_of
from tardigrad.core.text_table import TextTable, wrapped

if TYPE_CHECKING:
    from tardigrad.experiment.described import Description

WHAT = (*LISTS, "traces")


def show_list(
    what: Annotated[str, typer.Argument(metavar="|".join(WHAT), help="What to list.")],
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Explain this one, or one of yours: FILE.py:NAME."),
    ] = None,
) -> None:
    """List what a spec can name, with formulas or what each does; or one with every argument."""
    if what == "schedules":  # their name in 0.1
        tell("warning: learning rates are listed by tardigrad list rates")
        what = "rates"
    one_of("what to list", what, WHAT)
    if what == "traces":
        show_traces(name)
        return
    if name is not None:
        from tardigrad.experiment.described import described  # needs torch, as what it tells of
        from tardigrad.experiment.spec import STRUCTURE

        show_one(described(STRUCTURE, LISTS[what].registry, name))
        return
    out.print(TextTable((what, "what it does"), LISTS[what].lines(), headed=False))


def show_traces(name: str | None) -> None:
    """Measured step times that come with the package, and whose they are."""
    from tardigrad.clusters.shipped import TRACES  # needs numpy, as other lists do not

    if name is not None:
        one_of("trace", name, TRACES)
    rows = [
        (known, trace.what, trace.source, trace.licence)
        for known, trace in TRACES.items()
        if name in (None, known)
    ]
    out.print(TextTable(("traces", "what it is", "from", "licence"), rows))


def show_one(found: "Description") -> None:
    """Signature, formula and paper, and what each argument takes and means."""
    edge = out.width if out.is_terminal else None
    for paragraph in (found.signature, *found.text.splitlines()):
        for line in wrapped(paragraph, edge) or [""]:
            out.print(line, markup=False, highlight=False, soft_wrap=True)
    rows = [(a.name, a.takes, a.default or "must be given", a.meaning) for a in found.arguments]
    if rows:
        out.print()
        out.print(TextTable(("argument", "takes", "default", "meaning"), rows))
