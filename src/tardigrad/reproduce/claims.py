"""Claims of the papers, and verdicts that are computed from kept cells, never written by hand."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from tardigrad.core.result_table import ResultTable
from tardigrad.reproduce.filling import find, told_empty
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study

Kind = Literal[
    "holds", "holds with a choice", "does not hold", "cannot be tested here", "not measured yet"
]


class Verdict(NamedTuple):
    """What the cells that are there say of a claim."""

    kind: Kind
    ours: str = ""
    """Our figures, beside the published ones."""
    why: str = ""
    """The choice it takes; what was tried where it does not hold; why it cannot be tested."""

    @property
    def text(self) -> str:
        if self.kind == "holds with a choice":
            return f"holds with {self.why}"
        return f"{self.kind}: {self.why}" if self.why else self.kind


NOT_YET = Verdict("not measured yet")


@dataclass(frozen=True)
class Claim:
    """One line of the ledger."""

    id: str
    paper: str
    says: str
    published: str
    study: str | None = None
    """The name of what tests it; None: nothing here can."""
    judge: Callable[[FoundCells], Verdict] | None = None
    untestable: str = ""
    """Why nothing here can test it."""


class LedgerRow(NamedTuple):
    claim: Claim
    verdict: Verdict
    form: str
    """ "full", "quick", or nothing where nothing is measured."""
    there: str
    """How many of that form's cells are there."""
    empty: str
    """Which are not; nothing where none is."""
    command: str


def judged(claim: Claim, studies: Mapping[str, Study], results: Path) -> LedgerRow:
    """By the full form's cells where they decide it, else by the quick form's."""
    if claim.study is None or claim.judge is None:
        verdict = Verdict("cannot be tested here", why=claim.untestable)
        return LedgerRow(claim, verdict, "", "", "", "")
    study = studies[claim.study]
    forms = [False, True] if study.quick() else [False]
    undecided = []
    for quick in forms:
        found = find(study, results / study.name, quick)
        verdict = claim.judge(found) if found.cells else NOT_YET
        if verdict.kind != NOT_YET.kind:
            return _row(claim, verdict, "quick" if quick else "full", found, study.command(quick))
        undecided.append(_row(claim, verdict, "", found, study.command(quick)))
    return undecided[0]


def _row(claim: Claim, verdict: Verdict, form: str, found: FoundCells, command: str) -> LedgerRow:
    there = f"{len(found.cells)} of {len(found.planned)} cells"
    return LedgerRow(claim, verdict, form, there, told_empty(found), command)


def ledger_table(rows: list[LedgerRow]) -> ResultTable:
    kinds = [row.verdict.kind for row in rows]
    counts = {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}
    return ResultTable(
        title="Claims of five papers, judged by the cells that are there",
        columns=("id", "paper", "claim", "published", "ours", "verdict", "form", "command"),
        rows=tuple(
            (
                row.claim.id,
                row.claim.paper,
                row.claim.says,
                row.claim.published,
                row.verdict.ours,
                row.verdict.text,
                ", ".join(part for part in (row.form, row.there) if part),
                row.command,
            )
            for row in rows
        ),
        notes=(", ".join(f"{kind}: {n}" for kind, n in counts.items()),),
    )
