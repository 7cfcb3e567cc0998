"""Tables for LaTeX: cells are text, and nothing in them is a command."""

import re

import pytest

from tardigrad.core.latex import latex_text
from tardigrad.core.result_table import ResultTable

COMMANDS = {
    "textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar",
    "pm", "times", "theta",
}  # fmt: skip
TOKEN = re.compile(r"\\([A-Za-z]+)(?:\{\})?|\\([&%$#_{}])|(\$)|(\{)|(\})|(.)", re.S)


def check_plain(text: str) -> None:
    """Read as TeX reads it: only known commands, braces and $ in pairs, no special letters."""
    depth, math = 0, False
    for command, _, dollar, opens, closes, letter in TOKEN.findall(text):
        assert not command or command in COMMANDS, command
        math ^= bool(dollar)
        depth += bool(opens) - bool(closes)
        assert depth >= 0
        assert letter not in tuple("\\&%#_~^"), text
        assert letter not in tuple("[]") or depth == 1, text
    assert (depth, math) == (0, False), text


@pytest.mark.parametrize(
    "text",
    [
        "my_rule.py:log_penalty:betas=[0.9,0.99]",
        r"a\b{c}$d&e%f#g~h^i<j>k|l",
        "82.00% ± 4.00%",
        "[−0.0061, +0.05]",
        'task={"name": "quadratic", "dimension": 3}',
        "",
    ],
)
def test_any_text_is_escaped(text: str) -> None:
    check_plain(latex_text(text))


def test_a_table_has_as_many_cells_as_columns_in_every_row() -> None:
    rows = (("a_b & c", 1.5, None), ("[x]", 2, "3 %"))
    made = ResultTable("50% of ±", ("rule", "x_1", "y"), rows, ("a note",)).latex()
    lines = made.splitlines()
    assert r"\caption{50\% of $\pm$. a note}" in made
    assert r"\begin{tabular}{lrr}" in made
    body = [line.strip() for line in lines if line.endswith(r"\\")]
    assert len(body) == 3
    for line in body:
        cells = re.split(r"(?<!\\)&", line.removesuffix(r" \\"))
        assert len(cells) == 3
        for cell in cells:
            check_plain(cell.strip())
    assert not any(line.startswith("[") for line in body)  # an argument of the \\ before it
    opened = re.findall(r"\\begin\{(\w+)\}", made)
    assert opened == re.findall(r"\\end\{(\w+)\}", made)[::-1] == ["table", "tabular"]
    rules = [line.strip() for line in lines if "rule" in line and "&" not in line]
    assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_a_table_prints_as_the_command_line_does() -> None:
    table = ResultTable("title", ("rule", "loss"), (("sgd", 0.125), ("adam", 1234.5)), ("note",))
    assert str(table).splitlines() == [
        "title", "rule   loss", "───────────", "sgd   0.125", "adam  1,234", "note",
    ]  # fmt: skip
