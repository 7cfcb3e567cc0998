"""`tardigrad bench`."""

from typing import Annotated

import typer

from tardigrad.bench import BENCHMARKS
from tardigrad.checks import one_of
from tardigrad.cli.findings import show, show_json


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help="|".join(BENCHMARKS))],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure a part of tardigrad beside what it should beat, in one run."""
    one_of("name", name, BENCHMARKS)
    findings = BENCHMARKS[name]()
    if as_json:
        show_json(findings)
    else:
        show(findings)
