"""Measured times: resampled per worker; what is wrong with a file is told with its line."""

from pathlib import Path

import numpy as np
import pytest

from tardigrad.clusters import Trace
from tardigrad.clusters.shipped import TRACES


def trace(tmp_path: Path, text: str, workers: int = 0) -> Trace:
    path = tmp_path / "times.csv"
    path.write_text(text)
    return Trace(path=str(path), workers=workers)


def test_each_worker_takes_its_own_times(tmp_path: Path) -> None:
    text = "worker,step_s,host\n0,1.0,a\n1,5.0,b\n0,2.0,a\n1,6.0,b\n1,7.0,b\n"
    cluster = trace(tmp_path, text)
    assert cluster.workers == 2
    times = cluster.realise(0)
    first, second = times.step_s(0, np.arange(3000)), times.step_s(1, np.arange(3000))
    assert sorted(set(first)) == [1.0, 2.0]
    assert sorted(set(second)) == [5.0, 6.0, 7.0]
    assert abs((second == 6.0).mean() - 1 / 3) < 0.04


def test_a_small_trace_serves_a_larger_cluster(tmp_path: Path) -> None:
    cluster = trace(tmp_path, "worker,step_s\n0,1.0\n1,5.0\n", workers=5)
    assert cluster.realise(0).step_s(np.arange(5), 0).tolist() == [1.0, 5.0, 1.0, 5.0, 1.0]


def test_one_column_serves_all(tmp_path: Path) -> None:
    cluster = trace(tmp_path, "step_s\n1.5\n2.5\n", workers=3)
    drawn = cluster.realise(0).step_s(np.arange(3)[:, None], np.arange(50))
    assert set(drawn.ravel()) == {1.5, 2.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the header"),
        ("0,1.0\n", "line 1: the header"),
        ("worker,step_s\n", "nothing below"),
        ("worker,step_s\n0,1.0\n0,\n", "line 3: step_s is missing"),
        ("worker,step_s\n0,1.0\n0\n", "line 3: 1 values"),
        ("worker,step_s\n0,-1.0\n", "line 2: step_s must be finite and greater than 0"),
        ("worker,step_s\n0,nan\n", "line 2: step_s must be finite"),
        ("worker,step_s\n0,1.0\n0,fast\n", "line 3: step_s must be a number"),
        ("worker,step_s\n,1.0\n", "line 2: worker is missing"),
        ("worker,step_s\n0,1.0\n2,1.0\n", "none for worker 1"),
    ],
)
def test_broken_files_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trace(tmp_path, text)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no file .*nowhere\.csv"):
        Trace(path=str(tmp_path / "nowhere.csv"))


def test_what_is_no_text_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_bytes(b"worker,step_s\n0,\xff\n")
    with pytest.raises(ValueError, match=r"times\.csv cannot be read as a CSV file: .*utf-8"):
        Trace(path=str(tmp_path / "times.csv"))
    with pytest.raises(ValueError, match="cannot be read as a CSV file"):
        Trace(path=str(tmp_path))


def test_recorded_order_is_the_order_recorded(tmp_path: Path) -> None:
    text = "worker,step,step_s\n0,2,3.0\n0,1,2.0\n0,0,1.0\n1,0,7.0\n1,1,8.0\n"
    path = tmp_path / "times.csv"
    path.write_text(text)
    times = Trace(path=str(path), order="recorded").realise(0)
    assert times.step_s(0, np.arange(7)).tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert times.step_s([0, 1], [[1], [3]]).tolist() == [[2, 8], [1, 8]]
    assert Trace(path=str(path), order="recorded").realise(9).step_s(1, 1) == 8


def test_copies_of_a_recorded_worker_are_not_in_step(tmp_path: Path) -> None:
    (tmp_path / "times.csv").write_text("step_s\n" + "\n".join(map(str, range(1, 13))))
    times = Trace(str(tmp_path / "times.csv"), 3, "recorded").realise(0)
    assert times.step_s(np.arange(3), 0).tolist() == [1, 5, 9]
    with pytest.raises(ValueError, match="order must be one of 'resampled', 'recorded'"):
        Trace(str(tmp_path / "times.csv"), order="shuffled")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "workers", "steps"), [("alibaba_job1", 10, 300), ("bytedance_se", 32, 43)]
)
def test_traces_come_with_the_package(name: str, workers: int, steps: int) -> None:
    cluster = Trace(name)
    assert cluster.workers == workers
    assert cluster.log().aligned_s().shape == (steps, workers)
    assert cluster.log().guesses == ()
    shipped = TRACES[name]
    told = (shipped.path.parent / "README.md").read_text(encoding="utf-8")
    assert f"`{shipped.file}`" in told
    assert shipped.licence in told


def test_the_packages_own_straggler_is_the_one_told() -> None:
    """Worker 6 becomes slow in the middle of the first job."""
    aligned = Trace("alibaba_job1").log().aligned_s()
    before, after = np.array_split(aligned, 2)
    assert (after.mean(axis=0) / before.mean(axis=0)).argmax() == 6
