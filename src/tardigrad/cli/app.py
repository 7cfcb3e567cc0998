"""`tardigrad`: all commands together, and what they do with errors.

A command's file is imported when the command is called: most need torch, which takes a second, and
`tardigrad --help` needs none of them.
"""

import ast
import sys
import warnings
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from tardigrad.cli.console import complain, tell
from tardigrad.core.stop_signals import take_sigterm_as_ctrl_c
from tardigrad.core.version import __version__


class Place(NamedTuple):
    """Where a command is: a function, or a `Typer` with commands of its own."""

    file: str
    name: str
    panel: str
    needs_arguments: bool = True

    def text(self) -> str:
        """What its docstring says, read without importing the file."""
        tree = ast.parse(Path(__file__).with_name(f"{self.file}.py").read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == self.name:
                return ast.get_docstring(node) or ""
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == self.name:
                assert isinstance(node.value, ast.Call)
                words = {word.arg: word.value for word in node.value.keywords}
                return str(ast.literal_eval(words["help"]))
        raise LookupError(f"{self.file}.py has no command {self.name}")

    def made(self, name: str) -> Any:
        here = getattr(import_module(f"tardigrad.cli.{self.file}"), self.name)
        if not isinstance(here, typer.Typer):
            alone, here = here, typer.Typer(**SETTINGS)
            here.command(name, no_args_is_help=self.needs_arguments)(alone)
        command: Any = typer.main.get_command(here)
        command.name = name
        return command


COMMANDS = {
    "demo": Place("demo", "demo", "Start here", needs_arguments=False),
    "run": Place("run", "run", "Experiments"),
    "compare": Place("compare", "compare", "Experiments"),
    "sweep": Place("sweep", "sweep", "Experiments"),
    "report": Place("report", "report", "Experiments"),
    "plan": Place("plan", "plan", "Experiments"),
    "replay": Place("replay", "replay", "Clusters"),
    "compare-real": Place("compare_real", "compare_real", "Clusters"),
    "reproduce": Place("reproduce", "reproduce", "Evidence"),
    "claims": Place("claims", "claims", "Evidence", needs_arguments=False),
    "bench": Place("bench", "bench", "Evidence", needs_arguments=False),
    "list": Place("listing", "show_list", "What there is"),
    "data": Place("data", "data", "What there is"),
    "doctor": Place("doctor", "doctor", "What there is", needs_arguments=False),
}
SETTINGS: dict[str, Any] = {
    "rich_markup_mode": "markdown",
    "pretty_exceptions_enable": False,
    "add_completion": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Commands(TyperGroup):
    """Those of `COMMANDS`; to list them, their docstrings are enough."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]  # to suggest one
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        if self._listing:
            return TyperCommand(cmd_name, help=place.text(), rich_help_panel=place.panel)
        return place.made(cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self._listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._listing = False


app = typer.Typer(name="tardigrad", cls=Commands, **SETTINGS)


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
        print(__version__)
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
    take_sigterm_as_ctrl_c()
    try:
        app(prog_name="tardigrad")
    except (ValueError, OSError) as error:
        complain(str(error))
        sys.exit(2)
    except ArithmeticError as error:
        from tardigrad.engine import Diverged  # whoever raises it has imported it

        if not isinstance(error, Diverged):
            raise
        complain(str(error))
        sys.exit(1)
