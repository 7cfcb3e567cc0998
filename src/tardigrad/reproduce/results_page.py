"""The ledger in Markdown, between marks, in the README of the results and that of the project."""

from collections.abc import Sequence
from pathlib import Path

from tardigrad.core.checks import require
from tardigrad.engine.result_files import write
from tardigrad.reproduce.claims import LedgerRow

BEGIN = "<!-- claims: written by `tardigrad claims --write` -->"
END = "<!-- end of claims -->"
PAGE = "README.md"


def markdown_table(rows: Sequence[LedgerRow]) -> str:
    """All of a row; empty cells are told below the table."""
    lines = [
        "| | paper | claim | published | ours | verdict | form | command |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        claim, verdict = row.claim, row.verdict
        command = f"`{row.command}`" if row.command else ""
        plain = "holds" if verdict.kind.startswith("holds") else verdict.kind
        told = f"**{plain}**" + verdict.text.removeprefix(plain)
        by = ", ".join(part for part in (row.form, row.there) if part)
        facts = (claim.id, claim.paper, claim.says, claim.published, verdict.ours, told, by)
        cells = (*facts, command)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    empty = [f"- {row.claim.id}: {row.empty}" for row in rows if row.empty]
    return "\n".join([*lines, "", "Empty cells:", *(empty or ["- none"])])


def short_table(rows: Sequence[LedgerRow]) -> str:
    """A row a claim in few words, for the project's own page."""
    lines = ["| | claim | verdict |", "|---|---|---|"]
    for row in rows:
        form = f" ({row.form} form)" if row.form == "quick" else ""
        claim = row.claim
        lines.append(f"| {claim.id} | {claim.paper}: {claim.says} | {row.verdict.kind}{form} |")
    return "\n".join(lines)


def between_marks(text: str, inside: str) -> str:
    """The page with what stands between the marks replaced."""
    require(
        text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END),
        f"the page needs one line {BEGIN!r} and one line {END!r} after it",
    )
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    return f"{before}{BEGIN}\n{inside}\n{END}{after}"


def pages(results: Path, rows: Sequence[LedgerRow]) -> dict[Path, str]:
    """What the page of the results says with this ledger, and the project's where it has marks."""
    made = {results / PAGE: markdown_table(rows), results.parent / PAGE: short_table(rows)}
    texts = {path: path.read_text(encoding="utf-8") for path in made if path.exists()}
    marked = {path: text for path, text in texts.items() if BEGIN in text}
    require(bool(marked), f"no README.md in {results} or beside it has a line {BEGIN!r}")
    return {path: between_marks(text, made[path]) for path, text in marked.items()}


def write_ledger(results: Path, rows: Sequence[LedgerRow]) -> str:
    """Replaces them; their names."""
    changed = pages(results, rows)
    for path, text in changed.items():
        write(path, text)
    return " and ".join(map(str, changed))
