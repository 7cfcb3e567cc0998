"""A study of four small cells: two seeds, a run that diverges, a measurement."""

from pathlib import Path
from typing import Any

from tardigrad.core.result_table import ResultTable
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study, StudyCell


def spec(lr: float, seed: int) -> dict[str, Any]:
    return {
        "updates": 20,
        "seed": seed,
        "evaluate_every": 10,
        "task": {"name": "quadratic", "dimension": 4},
        "rule": {"name": "sgd", "lr": lr},
        "cluster": {"name": "gamma", "workers": 2},
    }


def doubled(folder: Path, number: int) -> dict[str, Any]:
    (folder / "picture.txt").write_text(str(2 * number))
    return {"twice": 2 * number}


CELLS = [
    *(StudyCell(f"lr=0.1/seed={seed}", spec(0.1, seed)) for seed in (0, 1)),
    StudyCell("lr=1e200/seed=0", spec(1e200, 0)),
    StudyCell("doubled", {"number": 21}, doubled),
]


def table(found: FoundCells) -> ResultTable:
    stems = ("lr=0.1", "lr=1e200")
    return ResultTable(
        "t", ("rate", "loss"), tuple((s, found.text(s, "validation_loss")) for s in stems)
    )


STUDY = Study("small", "a small study", lambda: CELLS, lambda: CELLS[:1], table)
