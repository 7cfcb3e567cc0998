"""Where words go: results to standard output, everything else to standard error."""

import signal

import typer
from rich.console import Console

from tardigrad.core.stop_signals import TERM, asked_by

# Lines go out as they are: what breaks them, such as a table, knows where it may.
out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


def complain(message: str) -> None:
    """One message, whole words, nothing read as markup."""
    err.print("error:", style="bold red", end=" ")
    err.print(message, markup=False, soft_wrap=True)


def stopped(error: KeyboardInterrupt, more: str = "") -> typer.Exit:
    """Say so; with what a shell expects of a program that a signal ended."""
    by = asked_by(error)
    complain(f"stopped by {by}{more}")
    return typer.Exit(128 + (signal.SIGTERM if by == TERM else signal.SIGINT))


def tell(message: str) -> None:
    err.print(message, markup=False, soft_wrap=True)
