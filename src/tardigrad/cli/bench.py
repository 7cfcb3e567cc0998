"""`tardigrad bench`."""

import inspect
from typing import Annotated, Literal

import typer

from tardigrad.bench import BENCHMARKS
from tardigrad.cli.console import out
from tardigrad.cli.show import show, show_json
from tardigrad.core.checks import one_of, require
from tardigrad.core.text_table import TextTable


def bench(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=f"{'|'.join(BENCHMARKS)}; without it, the list."),
    ] = None,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="Where tensors are, if there are any.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A shorter form, where there is one.")
    ] = False,
    mnist: Annotated[
        bool, typer.Option("--mnist", help="ray: time to a target loss, with a slow worker.")
    ] = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="plan: other clusters, tasks and seeds.")
    ] = False,
    trace: Annotated[
        str | None, typer.Option(help="plan: the fresh tasks on this trace, a name or a log.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a part of tardigrad beside what it should beat, in one run."""
    if name is None:
        says = {known: benchmark.__doc__ or "" for known, benchmark in BENCHMARKS.items()}
        rows = [(known, text.partition("\n")[0]) for known, text in says.items()]
        out.print(TextTable(("benchmark", "what it measures"), rows, headed=False))
        return
    one_of("name", name, BENCHMARKS)
    flags = {"quick": quick or None, "mnist": mnist or None, "fresh": fresh or None}
    options = {"device": device, "trace": trace, **flags}
    given = {option: value for option, value in options.items() if value is not None}
    for option in given:
        require(
            option in inspect.signature(BENCHMARKS[name]).parameters,
            f"the benchmark {name!r} has no --{option}: leave it out",
        )
    findings = BENCHMARKS[name](**given)
    if as_json:
        show_json(findings)
    else:
        show(findings)
