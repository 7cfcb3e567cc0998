"""Findings on a narrow screen: words go on in the next line, numbers stay whole."""

from io import StringIO

import pytest
from rich.console import Console

from tardigrad.cli import findings as shown
from tardigrad.findings import Findings

FOUND = Findings(
    title="t",
    columns=("workload", "a long header", "another one", "and a third", "fourth"),
    rows=(("μ=128, λ=250, gamma", 1234567.0, 0.123456, 987.65, 12_345),),
    notes=(),
)
NUMBERS = ("1,234,567", "0.1235", "987.6", "12,345")


@pytest.mark.parametrize("terminal", [True, False])
def test_numbers_are_never_cut(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    written = StringIO()
    console = Console(width=50, file=written, force_terminal=terminal, color_system=None)
    monkeypatch.setattr(shown, "out", console)
    shown.show(FOUND)
    for number in NUMBERS:
        assert number in written.getvalue()
    in_one_line = any("μ=128, λ=250, gamma" in line for line in written.getvalue().splitlines())
    assert in_one_line != terminal, "a file is as wide as it must be"
    assert console.width == 50
