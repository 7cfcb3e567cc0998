"""The ledger: 24 rows, judged by what is kept in results/, and the pages that are made of it."""

import json
from pathlib import Path

import pytest

from tardigrad.reproduce import CLAIMS, STUDIES, Claim, Verdict, ledger
from tardigrad.reproduce.claims import judged, ledger_table
from tardigrad.reproduce.filling import fill
from tardigrad.reproduce.kept_cells import CELLS, FoundCells
from tardigrad.reproduce.newer import NEWER
from tardigrad.reproduce.results_page import BEGIN, END, between_marks, pages, short_table
from tests.reproduce.small_study import STUDY

RESULTS = Path(__file__).parents[2] / "results"


def test_there_are_24_claims_and_each_study_tests_one() -> None:
    assert len({claim.id for claim in CLAIMS}) == len(CLAIMS) == 24
    others = {"stragglers", *(study.name for study in NEWER)}
    assert {claim.study for claim in CLAIMS if claim.study} == set(STUDIES) - others
    assert all((claim.judge is None) == bool(claim.untestable) for claim in CLAIMS)


def test_the_pages_say_what_the_ledger_says() -> None:
    """Else type: tardigrad claims --write"""
    said = pages(RESULTS, ledger(RESULTS))
    assert set(said) == {RESULTS / "README.md", RESULTS.parent / "README.md"}
    for path, text in said.items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: tardigrad claims --write"


def test_every_kept_file_is_a_cell_of_its_study() -> None:
    files = [path for path in RESULTS.rglob("*.json") if CELLS in path.parts]
    assert files, "results are kept"
    planned = {
        RESULTS / name / (f"quick/{CELLS}" if quick else CELLS) / f"{cell.name}.json"
        for name, study in STUDIES.items()
        for quick in ((False, True) if study.quick() else (False,))
        for cell in study.cells(quick)
    }
    assert set(files) <= planned
    for path in files:
        made = json.loads(path.read_text(encoding="utf-8"))["made"]
        assert {"command", "machine", "versions", "code", "wall_s"} <= set(made), path


def held(found: FoundCells) -> Verdict:
    return Verdict("holds", str(len(found.cells)))


def judged_small(folder: Path, judge: object = held) -> tuple[str, str, str, str]:
    claim = Claim("X1", "a paper", "it holds", "yes", "small", judge)  # type: ignore[arg-type]
    row = judged(claim, {"small": STUDY}, folder)
    return row.verdict.kind, row.form, row.there, row.command


def test_the_full_form_counts_before_the_quick_one(tmp_path: Path) -> None:
    assert judged_small(tmp_path) == (
        "not measured yet", "", "0 of 4 cells", "tardigrad reproduce small",
    )  # fmt: skip
    fill(STUDY, tmp_path / "small", quick=True)
    quick = ("holds", "quick", "1 of 1 cells", "tardigrad reproduce small --quick")
    assert judged_small(tmp_path) == quick
    fill(STUDY, tmp_path / "small", only="doubled")
    assert judged_small(tmp_path) == ("holds", "full", "1 of 4 cells", "tardigrad reproduce small")

    def undecided(found: FoundCells) -> Verdict:
        return held(found) if found.quick else Verdict("not measured yet")

    assert judged_small(tmp_path, undecided) == quick


def test_the_table_has_all_of_a_row(tmp_path: Path) -> None:
    rows = ledger(tmp_path)
    table = ledger_table(rows)
    assert len(table.rows) == 24
    assert table.notes == ("not measured yet: 22, cannot be tested here: 2",)
    texts = dict(zip(table.columns, table.rows[8], strict=True))
    assert texts["id"] == "G4"
    assert str(texts["verdict"]).startswith("cannot be tested here: no package")
    assert texts["command"] == ""


def test_marks_are_needed(tmp_path: Path) -> None:
    assert between_marks(f"a\n{BEGIN}\nold\n{END}\nb\n", "new") == f"a\n{BEGIN}\nnew\n{END}\nb\n"
    for text in ("", BEGIN, f"{END}{BEGIN}", f"{BEGIN}{BEGIN}{END}"):
        with pytest.raises(ValueError, match="the page needs one line"):
            between_marks(text, "new")
    with pytest.raises(ValueError, match=r"no README.md in"):
        pages(tmp_path, ledger(tmp_path))
    assert short_table(ledger(tmp_path)).count("\n") == 25
