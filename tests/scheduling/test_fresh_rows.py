"""Where what workers keep for themselves begins anew: a column, or found."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import tardigrad as tg
from tardigrad.clusters import Absence
from tardigrad.scheduling import Recorder, Schedule
from tardigrad.scheduling.prefix import prefix
from tardigrad.scheduling.validate import validate


def recorded(anew: list[tuple[int, int]]) -> Schedule:
    """Two workers with three gradients each, all applied."""
    recorder = Recorder(2, 1)
    for row in range(6):
        recorder.start(row % 2, row // 2, 0, (0,), float(row))
        recorder.finish(row, row + 1.0)
        recorder.apply(0, [row], 1.0, row + 1.0)
    for worker, step in anew:
        recorder.begin_anew(worker, step)
    return recorder.schedule()


def test_found_without_a_column() -> None:
    cluster = tg.Gamma(workers=2, absences=(Absence(1, 900.0, 1500.0),))
    made = tg.schedule(cluster=cluster, updates=60)
    assert not len(made.fresh)
    back = np.nonzero((made.worker == 1) & (made.start_s >= 1500.0))[0][0]
    assert np.nonzero(made.fresh_rows)[0].tolist() == [0, 1, back]


def test_found_until_a_row_has_changed_the_state() -> None:
    """One that was interrupted has left it as it was when the worker came back."""
    recorder = Recorder(1, 1)
    for row in range(5):
        if row == 1:
            recorder.member(0, False, 1.0)
            recorder.member(0, True, 1.0)
        recorder.start(0, row, 0, (0,), float(row))
        recorder.finish(row, row + 1.0)
        if row in (1, 2):
            recorder.drop(0, row, "interrupted", row + 1.0)
        else:
            recorder.apply(0, [row], 1.0, row + 1.0)
    assert np.nonzero(recorder.schedule().fresh_rows)[0].tolist() == [0, 1, 2, 3]


def test_a_column_says_where_else() -> None:
    assert recorded([]) == recorded([(0, 0), (1, 0)])  # which is found without
    made = recorded([(1, 2)])
    assert np.nonzero(made.fresh_rows)[0].tolist() == [0, 1, 5]


def test_it_is_saved_and_part_of_the_digest(tmp_path: Path) -> None:
    made, without = recorded([(1, 2)]), recorded([])
    made.save(tmp_path / "made")
    assert tg.Schedule.load(tmp_path / "made") == made
    assert made.digest != without.digest
    without.save(tmp_path / "without")  # as files are that are older than the column
    with safe_open(tmp_path / "without", framework="np") as file:
        assert "fresh" not in file.keys()  # noqa: SIM118
        assert json.loads(file.metadata()["plain"])["workers"] == 2
    assert tg.Schedule.load(tmp_path / "without") == without


def test_the_beginning_of_a_schedule_has_its_rows() -> None:
    shorter = prefix(recorded([(0, 1)]), 3)
    validate(shorter)
    assert len(shorter.fresh) == shorter.rows


@pytest.mark.parametrize(("column", "wrong"), [([1, 1], "length"), ([1, 1, 0, 0, 0, 2], "0 nor 1")])
def test_a_wrong_column_is_refused(column: list[int], wrong: str) -> None:
    with pytest.raises(ValueError, match=f"fresh .*{wrong}"):
        validate(replace(recorded([]), fresh=np.array(column)))
