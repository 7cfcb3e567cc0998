"""CSV with any usual separator, and tables as Markdown and databases print them."""

from tardigrad.clusters.logs.decimals import decimal_points
from tardigrad.clusters.logs.rows import SEPARATORS, Rows, TableRow
from tardigrad.clusters.logs.table import LogTable, StepLine, is_number
from tardigrad.core.checks import require


def read_separated(path: str, text: str) -> LogTable:
    source = Rows(text)
    rows = iter(source)
    head = next(rows, TableRow(1, []))
    above = source.comments
    body = list(rows)
    outer = _has_outer_bars(head, source.separator)
    header = _header(path, _inner(path, head) if outer else head)
    require(bool(body), f"{path} has a header and nothing below it")
    body = [_fitting(path, header, _inner(path, row) if outer else row) for row in body]
    guesses = []
    if source.separator != ",":
        guesses.append(f"columns separated by {SEPARATORS[source.separator]}")
    if below := source.comments - above:
        guesses.append(f"lines that begin with # are left out: {below:,}")
    pointed, doubts = (body, {}) if source.separator == "," else decimal_points(body)
    if pointed is not body:
        guesses.append("1,5 is 1.5")
    return LogTable(
        path,
        tuple(header),
        tuple(StepLine(n, dict(zip(header, cells, strict=True))) for n, cells in pointed),
        tuple(guesses),
        {header[i]: f"{path}, {doubt}" for i, doubt in doubts.items()},
    )


def _header(path: str, head: TableRow) -> list[str]:
    names = head.cells
    where = f"{path}, line {head.number}"
    require(
        any(not is_number(name) for name in names) and all(names[1:]),
        f"{where}: the header must name the columns, such as 'worker,step_s'; "
        f"it says {','.join(names)!r}",
    )
    require(len(set(names)) == len(names), f"{where}: a column stands twice")
    return names


def _has_outer_bars(head: TableRow, separator: str) -> bool:
    """| a | b |, and not |a|b, whose first column has no name."""
    return separator == "|" and len(head.cells) > 2 and not (head.cells[0] or head.cells[-1])


def _inner(path: str, row: TableRow) -> TableRow:
    require(
        len(row.cells) > 1 and not (row.cells[0] or row.cells[-1]),
        f"{path}, line {row.number}: must begin and end with a bar, as the header does",
    )
    return TableRow(row.number, row.cells[1:-1])


def _fitting(path: str, header: list[str], row: TableRow) -> TableRow:
    require(
        len(row.cells) == len(header),
        f"{path}, line {row.number}: {len(row.cells)} values for the {len(header)} columns "
        f"{','.join(header)}",
    )
    return row
