"""The study of stragglers in real traces: its definition by hand, and the shipped traces."""

from pathlib import Path

import numpy as np
import pytest

from tardigrad.clusters import Trace
from tardigrad.planning.studies.stragglers import slowdown, stragglers


def share(cell: object) -> float:
    return float(str(cell).rstrip("%")) / 100


def test_the_definition_by_hand(tmp_path: Path) -> None:
    """Three workers of 1 s, one of 3 s in every second step: max 3 + 1, mean 1.5 + 1."""
    (tmp_path / "mine.csv").write_text(
        "step,a,b,c,d\n" + "".join(f"{s},1,1,1,{3 if s % 2 else 1}\n" for s in range(40))
    )
    found = stragglers(tmp_path, tmp_path)
    (row,) = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert (row["trace"], row["workers"], row["steps"]) == ("mine", 4, 40)
    assert share(row["cost"]) == pytest.approx(4 / 2.5 - 1, abs=1e-3)
    assert share(row["waste"]) == pytest.approx(1 - 2.5 / 4, abs=1e-3)
    # Synchronously 4 gradients take 2 s; freely 3 + 1/2 of them are made in 1 s.
    assert share(row["saved: async"]) == pytest.approx(1 - 2 / 3.5, abs=0.01)
    # One backup: 3 gradients a second, from those that are not slow.
    assert share(row["saved: one backup"]) == pytest.approx(1 - 2 / 3, abs=0.02)
    assert found.figures[0].read_bytes().startswith(b"\x89PNG")


def test_the_traces_that_come_with_the_package(tmp_path: Path) -> None:
    rows = {str(row[0]): row for row in stragglers(tmp_path).rows}
    assert set(rows) == {"alibaba_job1", "bytedance_se"}
    for name, row in rows.items():
        times_s = Trace(name).log().aligned_s()
        slow = np.mean(times_s.max(axis=1)) / np.mean(times_s)
        assert slowdown(times_s) == pytest.approx(slow)
        assert share(row[3]) == pytest.approx(slow - 1, abs=6e-4)
        # Freely, a worker makes one gradient in its own mean time: what synchronous steps take is
        # known, so that is what there is to save, but for the start and the end.
        free = sum(1 / np.mean(own) for own in Trace(name).log().times_s)
        waiting = times_s.shape[1] / np.mean(times_s.max(axis=1))
        assert share(row[9]) == pytest.approx(1 - waiting / free, abs=0.02)


def test_a_folder_without_logs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no logs"):
        stragglers(tmp_path, tmp_path)
    (tmp_path / "one.csv").write_text("worker,step_s\n0,1.0\n0,2.0\n")
    with pytest.raises(ValueError, match="one: the workers have fewer than two steps in common"):
        stragglers(tmp_path, tmp_path)
