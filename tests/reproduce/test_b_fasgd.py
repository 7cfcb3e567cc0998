"""B-FASGD's figure in small: what is cut is cut, both ways are counted, the picture is drawn."""

from pathlib import Path

from tardigrad.reproduce.b_fasgd import b_fasgd
from tardigrad.tasks import quadratic


def test_the_table_tells_copies_both_ways(tmp_path: Path) -> None:
    task = quadratic(40, noise=0.02, dtype="float64")
    found = b_fasgd(tmp_path, updates=400, workers=4, task=task, lr=0.001)
    rows = {row[0]: dict(zip(found.columns, row, strict=True)) for row in found.rows}
    plain = rows["FASGD"]
    assert plain["gradients"] == plain["updates"] == 400
    assert plain["MB pushed"] == plain["MB pulled"] == 400 * 40 * 8 / 1e6
    cut = rows["c_pull 0.11"]
    assert cut["MB pushed"] == plain["MB pushed"]
    assert cut["MB pulled"] < plain["MB pulled"] / 2
    cut = rows["c_push 0.11 reapply"]
    assert (cut["updates"], cut["MB pulled"]) == (400, plain["MB pulled"])
    assert cut["MB pushed"] < plain["MB pushed"] / 2
    assert rows["c_push 0.11 average"]["updates"] < 200
    assert (tmp_path / "b_fasgd.png").stat().st_size > 10_000
