"""`compare-real --all`: predictions beside measurements, cell by cell."""

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.cli import main
from tardigrad.experiment import compare_real_all, fidelity
from tardigrad.experiment.fidelity import AsKept
from tardigrad.policies import Policy
from tardigrad.recording.folder import RunFolder
from tardigrad.runtime import ActorPool


def compared(folder: Path, pool: ActorPool, seconds: float = 1.0) -> Any:
    lines: list[str] = []
    chosen: dict[str, Any] = {"policies": ["async", "sync"], "times": ["gamma"]}
    found = compare_real_all(folder, seconds=seconds, pool=pool, tell=lines.append, **chosen)
    assert [line.split(",")[0] for line in lines] == ["1 of 2: async", "2 of 2: sync"]
    return found


def test_every_cell_is_predicted_measured_and_kept(
    pool: ActorPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = compared(tmp_path, pool)
    rows = [dict(zip(found.columns, row, strict=True)) for row in found.rows]
    assert [(row["policy"], row["step times"]) for row in rows] == [
        ("async", "gamma"),
        ("sync", "gamma"),
    ]
    for row in rows:  # how near it comes is a matter of what else the machine does
        assert 0 < row["measured"] < 1.1 * row["gradients/s, imposed"]
        assert 0 < row["as kept"] < 1.1 * row["gradients/s, imposed"]
    with (tmp_path / "fidelity.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 3
    assert found.figures == (tmp_path / "fidelity.png",)
    assert found.figures[0].stat().st_size > 10_000

    def never(*given: Any, **more: Any) -> Any:
        raise AssertionError("it is there")

    monkeypatch.setattr(fidelity, "run_on_ray", never)
    assert compared(tmp_path, pool).rows == found.rows
    with pytest.raises(ValueError, match="holds a run with another updates: write elsewhere"):
        compared(tmp_path, pool, seconds=3.0)


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync(), tg.SoftSync(2)], ids=repr)
def test_the_step_times_that_were_kept_give_the_schedule_that_was_made(policy: Policy) -> None:
    """Whatever was imposed; here all of it is simulated, so that it must come out the same."""
    network = tg.Network(latency_s=0.25)
    cluster = tg.Gamma(workers=4, mean_s=10.0, heterogeneous=True, network=network)
    made = tg.schedule(policy, cluster, updates=60, seed=3)
    imposed = tg.Gamma(workers=4, mean_s=7.0)
    again = tg.schedule(policy, AsKept(imposed, made, 0.25), updates=60)
    assert np.array_equal(again.group_rows, made.group_rows)
    assert again.group_time_s == pytest.approx(made.group_time_s)
    longer = tg.schedule(policy, AsKept(imposed, made, 0.25), updates=200)
    assert longer.updates == 200, "steps that were not made take the imposed times"


def test_a_cell_that_was_interrupted_is_run_again(pool: ActorPool, tmp_path: Path) -> None:
    """Its clock went on while nothing happened, so that it says nothing of speed."""
    chosen: dict[str, Any] = {"policies": ["async"], "times": ["gamma"], "seconds": 0.5}
    compare_real_all(tmp_path, pool=pool, **chosen)
    folder = RunFolder.open(tmp_path / "async,-gamma")
    (folder.path / "summary.json").write_text('{"status": "stopped"}')
    compare_real_all(tmp_path, pool=pool, **chosen)
    assert folder.summary()["status"] == "finished"


@pytest.mark.parametrize(
    ("words", "why"),
    [(["a.toml", "--all"], "leave a.toml out"), (["--json"], "give the experiment")],
)
def test_a_file_or_all(
    words: list[str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["tardigrad", "compare-real", *words])
    with pytest.raises(SystemExit):
        main()
    assert why in capsys.readouterr().err
