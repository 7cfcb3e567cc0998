"""B-FASGD's figure in small: what is cut is cut, both ways are counted, the picture is drawn."""

from pathlib import Path
from typing import Any

from tardigrad.reproduce.b_fasgd import b_fasgd
from tardigrad.tasks import quadratic


def test_the_table_tells_copies_both_ways(tmp_path: Path) -> None:
    task = quadratic(40, noise=0.02, dtype="float64")
    found = b_fasgd(tmp_path, updates=400, workers=4, task=task, lr=0.001)
    rows: dict[Any, dict[str, Any]] = {
        row[0]: dict(zip(found.columns, row, strict=True)) for row in found.rows
    }
    plain = rows["FASGD"]
    assert plain["updates"] == 400
    assert plain["MB up"] == plain["MB down"] == 400 * 40 * 8 / 1e6
    cut = rows["pull 0.12"]
    assert cut["MB up"] == plain["MB up"]
    assert cut["MB down"] < plain["MB down"] / 2
    cut = rows["push 0.12 reapply"]
    assert (cut["updates"], cut["MB down"]) == (400, plain["MB down"])
    assert cut["MB up"] < plain["MB up"] / 2
    assert rows["push 0.12 average"]["updates"] < 200
    assert (tmp_path / "b_fasgd.png").stat().st_size > 10_000
