"""`run --on ray`, `replay` and `compare-real` as a user meets them."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import tardigrad as tg
from tardigrad.cli import main
from tardigrad.cli.live import tables
from tardigrad.experiment import Spec, compare_real, run_on_ray
from tardigrad.experiment.real import message_s
from tardigrad.policies import Policy
from tardigrad.recording.folder import RunFolder
from tardigrad.runtime import ActorPool, Live
from tardigrad.runtime.shard_shell import LiveShard
from tardigrad.runtime.worker_shell import LiveWorker

SPEC = """
updates = 40
shards = 2
[task]
name = "logistic_regression"
train_size = 200
validation = 50
[rule]
name = "gap_aware"
lr = 0.05
ema = 0.9
[policy]
name = "stale_synchronous"
bound = 2
[cluster]
name = "gamma"
workers = 3
mean_s = 0.03
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "real.toml").write_text(SPEC)
    return tmp_path / "real.toml"


def cli(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, Any]:
    monkeypatch.setattr(sys, "argv", ["tardigrad", *words])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    return code, capsys.readouterr()


def test_one_file_runs_simulated_and_real_and_what_was_real_is_replayed(
    file: Path,
    ray_here: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file.write_text(SPEC.replace("workers = 3", "workers = 1"))  # it starts processes of its own
    code, _ = cli(monkeypatch, capsys, "run", "real.toml")
    assert code == 0
    code, said = cli(monkeypatch, capsys, "run", "real.toml", "--on", "ray", "--out", "real")
    assert code == 0, said.err
    assert "everything is in real" in said.out
    folder = RunFolder.open(Path("real"))
    assert folder.summary()["status"] == "finished"
    assert (folder.summary()["clock"], folder.summary()["imposed"]) == ("measured", False)
    assert "validation set, measured time" in said.out
    assert [r["update"] for r in folder.metrics()] == list(range(0, 41, 2))
    code, said = cli(monkeypatch, capsys, "replay", "real")
    assert (code, said.err) == (0, "")
    assert "identical bit for bit: 40 updates executed again, 2 digests compared" in said.out
    code, said = cli(monkeypatch, capsys, "replay", "real", "--until", "10")
    assert code == 0
    assert Path("real/replay-10.safetensors").exists()
    code, said = cli(monkeypatch, capsys, "run", "real.toml", "--on", "ray", "--out", "real")
    assert code == 2
    assert "already holds a run" in said.err
    code, said = cli(
        monkeypatch, capsys, "run", "real.toml", "rule.lr=1", "--on", "ray", "--out", "real",
        "--resume",
    )  # fmt: skip
    assert code == 2
    assert "rule.lr was 0.05, and is 1;" in said.err
    params = load_file("real/params.safetensors")
    record = json.loads(Path("real/record.json").read_text())
    record["digests"][-1][2] = "0" * 16
    Path("real/record.json").write_text(json.dumps(record))
    code, said = cli(monkeypatch, capsys, "replay", "real")
    assert code == 1
    assert "shard 1 differs from the recorded run at version 40" in said.err
    assert all(torch.isfinite(tensor).all() for tensor in params.values())


def test_options_of_ray_need_ray(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = cli(monkeypatch, capsys, "run", "real.toml", "--impose")
    assert code == 2
    assert "add --on ray" in said.err


def test_measures_are_refused(file: Path, tmp_path: Path) -> None:
    spec = Spec.load(file, ['measures=["gap"]'])
    with pytest.raises(ValueError, match=r"measures .* leave them out"):
        run_on_ray(spec, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wall_time_counts_from_the_beginning_of_a_resumed_run(
    file: Path, tmp_path: Path, pool: ActorPool
) -> None:
    spec, path = Spec.load(file), tmp_path / "out"
    first = run_on_ray(spec, path, pool=pool)
    record = json.loads((path / "record.json").read_text())
    began = {"began_s": record["began_s"] - 1000, "finished": False}
    (path / "record.json").write_text(json.dumps(record | began))  # its driver was killed there
    (path / "summary.json").unlink()
    again = run_on_ray(spec, path, resume=True, pool=pool)
    assert 1000 <= RunFolder.open(path).summary()["wall_s"] < 1600
    assert torch.equal(first.params, again.params)


def test_compare_real_sets_prediction_beside_measurement(
    file: Path, tmp_path: Path, pool: ActorPool
) -> None:
    found = compare_real(Spec.load(file), tmp_path / "out", pool=pool)
    rows: dict[str, Any] = {str(row[0]): row for row in found.rows}
    rates = rows["gradients per second"]
    assert 0.2 < rates[4] < 1.1
    assert rates[2] < rates[1]  # messages take time
    assert abs(rows["mean delay"][1] - rows["mean delay"][3]) < 1
    delays = [row for name, row in rows.items() if name.startswith("delay ")]
    for column in (1, 2, 3):
        assert sum(row[column] for row in delays) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    "policy",
    [tg.Async(), tg.Async(wait=False), tg.Sync(), tg.Partial(push=3, push_timeout_s=2.0)],
    ids=str,
)
def test_the_time_of_messages_is_read_from_a_schedule(policy: Policy) -> None:
    network = tg.Network(latency_s=0.25)
    cluster = tg.Gamma(workers=4, mean_s=10.0, network=network)
    assert message_s(tg.schedule(policy, cluster, updates=40)) == pytest.approx(0.25)


def test_only_step_times_can_be_imposed(file: Path, tmp_path: Path, pool: ActorPool) -> None:
    spec = Spec.load(file, ["cluster.network.latency_s=0.01"])
    with pytest.raises(ValueError, match="only a cluster's step times can be imposed"):
        compare_real(spec, tmp_path / "out", pool=pool)


def test_the_live_table_tells_of_every_worker_and_shard() -> None:
    status = LiveShard(30, 2, 4_000_000, 8_000_000, {0: 9, 1: 20}, {1: 3}, {0: (9, 18), 1: (20, 0)})
    both = [status, status._replace(loss=9.0)]
    both[0] = status._replace(loss=0.25)
    earlier = [shard._replace(version=10) for shard in both]
    first = Live(1.0, earlier, {0: LiveWorker(False, 0, 0, 0.0, 0)})
    live = Live(
        3.0, both, {0: LiveWorker(True, 10, 10, 1.0, 0), 1: LiveWorker(True, 20, 20, 2.0, 0)}
    )
    shown: list[Any] = list(tables(live, first, 60).renderables)
    line, _, workers, _, shards = shown
    assert line == "update 30 of 60, loss 0.25, 10 updates/s, 3 s left"
    assert workers.rows == [
        ("0", "10", "5.0", "2.0", "50%", "0"),
        ("1", "20", "10.0", "0.0", "0%", "3"),
    ]
    assert shards.rows == [(shard, "30 of 60", "2", "4.0", "8.0") for shard in "01"]
