"""Where words go: results to standard output, everything else to standard error."""

from rich.console import Console

# Lines go out as they are: what breaks them, such as a table, knows where it may.
out = Console(highlight=False, markup=False, soft_wrap=True)
err = Console(stderr=True, highlight=False)


def complain(message: str) -> None:
    """One message, whole words, nothing read as markup."""
    err.print("error:", style="bold red", end=" ")
    err.print(message, markup=False, soft_wrap=True)


def tell(message: str) -> None:
    err.print(message, markup=False, soft_wrap=True)
