"""`tardigrad`: all commands together, and what they do with errors."""

import sys
import warnings
from typing import Annotated, TextIO

import typer

import tardigrad
from tardigrad.cli.bench import bench
from tardigrad.cli.compare import compare
from tardigrad.cli.compare_real import compare_real
from tardigrad.cli.console import complain, tell
from tardigrad.cli.data import data
from tardigrad.cli.demo import demo
from tardigrad.cli.listing import show_list
from tardigrad.cli.plan import plan
from tardigrad.cli.replay import replay
from tardigrad.cli.report import report
from tardigrad.cli.reproduce import reproduce
from tardigrad.cli.run import run
from tardigrad.cli.sweep import sweep
from tardigrad.engine import Diverged

app = typer.Typer(
    name="tardigrad",
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel="Start here")(demo)
app.command(rich_help_panel="Experiments", no_args_is_help=True)(run)
app.command(rich_help_panel="Experiments", no_args_is_help=True)(compare)
app.command(rich_help_panel="Experiments", no_args_is_help=True)(sweep)
app.command(rich_help_panel="Experiments", no_args_is_help=True)(report)
app.command(rich_help_panel="Experiments", no_args_is_help=True)(plan)
app.command(rich_help_panel="Clusters", no_args_is_help=True)(replay)
app.command("compare-real", rich_help_panel="Clusters", no_args_is_help=True)(compare_real)
app.command(rich_help_panel="Evidence", no_args_is_help=True)(reproduce)
app.command(rich_help_panel="Evidence")(bench)
app.command("list", rich_help_panel="What there is", no_args_is_help=True)(show_list)
app.add_typer(data, name="data", rich_help_panel="What there is", no_args_is_help=True)


@app.callback(invoke_without_command=True)
def tardigrad_(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Late gradients, put to work: simulate asynchronous distributed SGD, exactly.

    An experiment is a TOML file: a task, a server rule, a waiting policy and a cluster's step
    times. **tardigrad run** turns it into a folder with the schedule of late gradients,
    metrics and figures, the same to the bit every time.

    Begin with **tardigrad demo**: six rules on real MNIST, 16 simulated workers.
    """
    if version:
        print(tardigrad.__version__)
    elif context.invoked_subcommand is None:
        print(context.get_help())


def _tell_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """One line: where in the code it arose is of no use at the command line."""
    tell(f"warning: {message}")


def main() -> None:
    """Bad input is one message and exit code 2; a run that diverged, exit code 1."""
    warnings.showwarning = _tell_warning
    try:
        app(prog_name="tardigrad")
    except Diverged as diverged:
        complain(str(diverged))
        sys.exit(1)
    except (ValueError, OSError) as error:
        complain(str(error))
        sys.exit(2)
