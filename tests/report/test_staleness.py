"""Delay, gap and B-staleness beside each other."""

import math
from pathlib import Path

import pytest

from tardigrad.engine.result_files import GRADIENTS
from tardigrad.experiment import Spec, run
from tardigrad.recording.folder import RunFolder
from tardigrad.report import draw_staleness, rank_correlation


def test_rank_correlation_is_spearmans() -> None:
    assert rank_correlation([1, 2, 3, 4], [10, 20, 25, 1000]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    # By hand: ranks 1.5 1.5 3 4 and 1 2 3 4, so the covariance is 4.5 / sqrt(4.5 · 5).
    assert rank_correlation([7, 7, 8, 9], [1, 2, 3, 4]) == pytest.approx(4.5 / math.sqrt(22.5))
    assert math.isnan(rank_correlation([1, 1], [1, 2]))


def test_a_run_keeps_what_it_measured_of_every_gradient(tmp_path: Path) -> None:
    spec = Spec.of(
        {
            "updates": 80,
            "task": {"name": "quadratic", "noise": 0.1},
            "rule": {"name": "sgd", "lr": 0.05},
            "cluster": {"name": "gamma", "workers": 4},
            "measures": ["gap", "b_staleness"],
        }
    )
    done = run(spec, tmp_path / "run")
    folder = RunFolder.open(tmp_path / "run")
    measured = folder.gradients()
    assert measured["delay"] == done.schedule.delays.tolist()
    assert measured["gap"] == done.history.gap
    assert measured["b_staleness"] == done.history.b_staleness
    assert draw_staleness(measured, tmp_path / "three.png", "title")
    assert (tmp_path / "three.png").stat().st_size > 10_000
    assert not draw_staleness({"delay": [1.0]}, tmp_path / "none.png", "title")
    (folder.path / GRADIENTS).write_text("delay,gap\n1,2\n3\n")
    with pytest.raises(ValueError, match="damaged"):
        folder.gradients()
