"""FASGD's figures in small: a row for each panel, the rules' ratio, the picture."""

from pathlib import Path

import pytest

from tardigrad.reproduce import TRAININGS
from tardigrad.reproduce.fasgd import FIGURE_1, FIGURE_2


@pytest.mark.parametrize(("name", "panels"), [("fasgd-fig1", FIGURE_1), ("fasgd-fig2", FIGURE_2)])
def test_every_panel_has_a_row(
    name: str, panels: tuple[tuple[int, int], ...], tmp_path: Path
) -> None:
    found = TRAININGS[name](tmp_path, updates=12)
    rows = found.data()["rows"]
    assert [(row["μ"], row["λ"], row["mean delay"]) for row in rows] == [
        (batch, workers, workers - 1) for batch, workers in panels
    ]
    better = [row["FASGD"] < row["SASGD"] for row in rows]
    for row in rows:
        assert 0 < row["FASGD"] < 5
        assert row["SASGD/FASGD"] == pytest.approx(row["SASGD"] / row["FASGD"], abs=2e-3)
        assert (row["FASGD first below"] is not None) >= (row["FASGD"] < row["SASGD"])
    assert f"holds in {sum(better)} of 4 panels" in found.notes[0]
    assert (tmp_path / f"{name.replace('-', '_')}.png").stat().st_size > 10_000
