"""Tables for LaTeX: whatever stands in a cell is printed, and nothing in it is a command."""

from collections.abc import Sequence

PREAMBLE = r"% needs \usepackage{booktabs}"
ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After \\ an opening bracket would begin an argument.
    "[": "{[}",
    "]": "{]}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "–": "--",
    "θ": r"$\theta$",
    "\n": " ",
}


def latex_text(text: str) -> str:
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def latex_table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]], keys: int
) -> str:
    """A table environment. Columns that name a row stand left, the others right."""
    aligned = "l" * keys + "r" * (len(columns) - keys)
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            rf"  \caption{{{latex_text(caption)}}}",
            rf"  \begin{{tabular}}{{{aligned}}}",
            r"    \toprule",
            _row(columns),
            r"    \midrule",
            *map(_row, rows),
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _row(cells: Sequence[str]) -> str:
    return f"    {' & '.join(map(latex_text, cells))} \\\\"
