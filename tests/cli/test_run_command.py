"""`tardigrad run`: what a folder holds, what is refused, and that nothing is written before."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

import tardigrad as tg
from tardigrad.engine import Tick
from tardigrad.engine.checkpoint import load_checkpoint
from tardigrad.experiment import Spec, run
from tardigrad.recording.folder import RunFolder
from tardigrad.tasks import quadratic
from tests.cli.command_line import Cli

LOCAL_STEPS = "work={name='local_steps',steps=4,inner={name='sgd',lr=0.1}}"
FASGD = "rule={name='fasgd',lr=0.01}"


def test_a_run_is_a_folder(cli: Cli) -> None:
    said = cli("run", "small.toml", "rule.ema=0.5")
    assert said.code == 0
    assert "mean delay" in said.out
    folder = Path("runs/small")
    assert {path.name for path in folder.iterdir()} == {
        "spec.toml",
        "schedule.safetensors",
        "metrics.jsonl",
        "losses.csv",
        "summary.json",
        "average.safetensors",
        "params.safetensors",
        "checkpoint.safetensors",
        "loss_by_update.png",
        "loss_by_time.png",
        "delays.png",
        "timeline.png",
        "timeline.perfetto.json",
        "report.html",
    }
    assert all(png.read_bytes()[:4] == b"\x89PNG" for png in folder.glob("*.png"))
    spec = Spec.load(folder / "spec.toml")
    assert spec == Spec.load("small.toml", ["rule.ema=0.5"])
    schedule = tg.Schedule.load(folder / "schedule.safetensors")
    again = tg.execute(schedule, spec.make_task(), spec.make_rule(), evaluation=3)
    saved = load_file(folder / "params.safetensors")
    assert set(saved) == {"weight", "bias"}
    averaged = load_file(folder / "average.safetensors")
    assert torch.equal(averaged["weight"], again.state_dict(average=True)["weight"])
    parts = [saved[name].reshape(-1) for name in spec.make_task().layout.names]
    assert torch.equal(torch.cat(parts), again.params)
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [record["update"] for record in records] == [*range(0, 60, 3), 60]
    for record, expected in zip(records, again.history.records, strict=True):
        assert record | {"wall_s": 0} == expected | {"wall_s": 0}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "finished"
    assert summary["mean_delay"] == schedule.delays.mean()
    assert summary["final"]["validation_loss"] == records[-1]["validation_loss"]


def test_a_folder_in_use_is_refused_with_what_to_type(cli: Cli) -> None:
    cli("run", "small.toml")
    before = {path: path.stat().st_mtime_ns for path in Path("runs/small").iterdir()}
    said = cli("run", "small.toml", "seed=1")
    assert said.code == 2
    assert "runs/small already holds a run" in said.err
    assert "--resume" in said.err
    assert "--out" in said.err
    Path("papers").mkdir()
    Path("papers/draft.txt").write_text("mine")
    assert (
        "papers is already there and not empty" in cli("run", "small.toml", "--out", "papers").err
    )
    said = cli("run", "small.toml", "--resume", "seed=1", "rule.lr=0.1")
    assert said.code == 2
    assert "rule.lr was 0.05, and is 0.1, seed was 0, and is 1;" in said.err
    assert before == {path: path.stat().st_mtime_ns for path in Path("runs/small").iterdir()}
    assert [path.name for path in Path("papers").iterdir()] == ["draft.txt"]
    Path("empty").mkdir()
    assert cli("run", "small.toml", "--out", "empty").code == 0


def test_two_processes_cannot_write_one_folder(cli: Cli) -> None:
    cli("run", "small.toml")
    folder = RunFolder(Path("runs/small"))
    longer = Spec.load("small.toml", ["updates=70"]).toml()
    for spec in (None, longer):  # a changed spec is another file, and is locked as well
        with folder.locked() as save_spec:
            if spec is not None:
                save_spec(spec)
            said = cli("run", "small.toml", "updates=80", "--resume")
        assert said.code == 2
        assert "being written by a run that is still going" in said.err
    assert (folder.path / "spec.toml").read_text() == longer


@pytest.mark.parametrize(
    "changes",
    [
        ("rule.nam=sgd",),
        ("rule.lr=-1",),
        ("task.sampling=sideways",),
        ("task.batch_size=0",),
        ("task.device=abacus",),
        ("shards=1000",),
        ("rule.name=gap_aware", "rule.per=global", "shards=2"),
        ("task={name='quadratic'}", "rule.lr={rate='linear',lr=1,over=2,by='epochs'}"),
        (LOCAL_STEPS, "link={name='every',push=2}"),
        (LOCAL_STEPS, "link={name='bandwidth_aware',on_drop='average'}", FASGD),
        (LOCAL_STEPS, "work.inner={name='adam',lr=0.1}", "link=bandwidth_aware", FASGD),
        (LOCAL_STEPS, "policy=dylu", "link=bandwidth_aware", FASGD),
        (LOCAL_STEPS, "measures=['b_staleness']", "work.inner={name='adam',lr=0.1}"),
        ("link.codec={name='top_k',share=0.5}", "measures=['b_staleness']"),
        ("memory_gib=1e9",),
        ("memory_gib=1e-9",),
        ("chunk=1000000000",),
        ("rule.rate_scale={wieght=2}", "--on", "ray"),
        ("rule={name='muon',lr=0.01}", "shards=2", "--on", "ray"),
        ("policy={name='malenia',batch=3}", "rule={name='dana',lr=0.01}", "--on", "ray"),
        ("shards=100000", "--on", "ray"),
        (LOCAL_STEPS, "link={name='every',push=2}", "--on", "ray"),
    ],
)
def test_bad_input_is_one_message_and_writes_nothing(cli: Cli, changes: tuple[str, ...]) -> None:
    said = cli("run", "small.toml", *changes)
    assert said.code == 2
    assert said.err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in said.err + said.out
    assert [path.name for path in Path().iterdir()] == ["small.toml"]


def test_what_cannot_be_extended_stays_as_it_was(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("run", "small.toml")
    before = {path: path.stat().st_mtime_ns for path in Path("runs/small").iterdir()}

    def too_large(*of: object) -> None:
        raise ValueError("the run would take 9 GiB")

    with monkeypatch.context() as patch:
        patch.setattr("tardigrad.engine.choose.check_memory", too_large)
        said = cli("run", "small.toml", "updates=120", "--resume")
    assert (said.code, "9 GiB" in said.err) == (2, True)
    assert before == {path: path.stat().st_mtime_ns for path in Path("runs/small").iterdir()}
    said = cli("run", "small.toml", "updates=120", "--on", "ray", "--resume")
    assert (said.code, "holds a simulated run: go on with it there" in said.err) == (2, True)
    assert before == {path: path.stat().st_mtime_ns for path in Path("runs/small").iterdir()}
    Path("runs/small/record.json").write_text("{}")
    said = cli("run", "small.toml", "updates=120", "--resume")
    assert (said.code, "holds a run on Ray: go on with it there" in said.err) == (2, True)
    assert len(before) + 1 == len(list(Path("runs/small").iterdir()))


def test_an_extension_that_ray_refuses_leaves_the_spec(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of a policy whose workers may be ahead of a shard."""
    folder = RunFolder.create(Path("r"), Spec.load("small.toml").toml(), None)
    record = folder.path / "record.json"
    record.write_text('{"format": "tardigrad-ray-2", "updates": 60}')
    before = (folder.path / "spec.toml").read_text()

    def refused(*of: object, updates: int, **more: object) -> None:
        assert Spec.load("r/spec.toml").updates == updates == 90
        raise ValueError("cannot be extended")

    monkeypatch.setattr("tardigrad.runtime.train", refused)
    said = cli("run", "small.toml", "updates=90", "--out", "r", "--on", "ray", "--resume")
    assert (said.code, "cannot be extended" in said.err) == (2, True)
    assert (folder.path / "spec.toml").read_text() == before
    record.write_text('{"format": "tardigrad-ray-2", "updates": 90}')  # it had begun
    cli("run", "small.toml", "updates=90", "--out", "r", "--on", "ray", "--resume")
    assert (folder.path / "spec.toml").read_text() != before


def test_a_diverging_run_stops_and_keeps_its_last_good_checkpoint(cli: Cli) -> None:
    task = "task={name='quadratic',dimension=10}"
    said = cli("run", "small.toml", task, "rule.lr=9", "updates=400", "checkpoint_every=20")
    assert said.code == 1
    assert "became inf at update" in said.err
    assert "in a gradient of worker" in said.err
    tensors, facts = load_checkpoint(Path("runs/small/checkpoint.safetensors"))
    assert facts["position"] >= 20
    assert f"holds the checkpoint after update {facts['position']}" in said.err
    assert all(torch.isfinite(tensor).all() for tensor in tensors.values())
    summary = json.loads(Path("runs/small/summary.json").read_text())
    assert summary["status"] == "diverged"
    assert "worker" in summary["why"]
    assert RunFolder(Path("runs/small")).metrics()[-1]["update"] <= facts["position"]


def test_a_diverged_run_is_told_as_far_as_it_came(cli: Cli) -> None:
    task = "task={name='quadratic',dimension=10}"
    cli("run", "small.toml", task, "rule.lr=9", "updates=400", "checkpoint_every=20")
    summary = json.loads(Path("runs/small/summary.json").read_text())
    came = int(re.search(r"at update (\d+)", summary["why"])[1])  # type: ignore[index]
    planned = tg.Schedule.load("runs/small/schedule.safetensors")
    assert (summary["updates"], summary["gradients"]) == (came, came)
    assert summary["time_s"] == planned.group_time_s[came - 1] < planned.end_time
    assert summary["mean_delay"] == planned.delays[:came].mean()
    said = cli("report", "--html", "runs/small")
    assert f"The run has diverged: the loss became inf at update {came}" in said.out


@pytest.mark.parametrize("every", [0, 20], ids=["before a checkpoint", "behind one"])
def test_a_diverged_run_of_python_objects_is_reported(cli: Cli, every: int) -> None:
    task, cluster = quadratic(dimension=10), tg.Gamma(workers=4)
    made = tg.schedule(tg.Async(), cluster, updates=400)
    with pytest.raises(tg.Diverged):
        tg.execute(made, task, tg.rules.sgd(9.0), checkpoints=tg.Checkpoints("made", every))
    for words in ("made",), ("--html", "made"):
        said = cli("report", *words)
        assert (said.code, "Sgd (diverged)" in said.out) == (0, True), said.err


def test_an_infinite_parameter_is_found_before_it_is_saved(tmp_path: Path) -> None:
    """Loss and gradient of a view read earlier are still finite when θ no longer is."""

    def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        return torch.full_like(view, 3e38 if (worker, step) == (1, 2) else 1.0)

    task = tg.FunctionTask(torch.zeros(3), grad)
    order = [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    schedule = tg.Schedule.from_order(order, num_workers=3)
    saving = tg.Checkpoints(tmp_path, every=1)
    with pytest.raises(tg.Diverged, match=r"a parameter became -inf at update 8.* worker 1"):
        tg.execute(schedule, task, tg.rules.sgd(10.0), checkpoints=saving)
    tensors, facts = load_checkpoint(tmp_path / "checkpoint.safetensors")
    assert facts["position"] == 7
    assert torch.isfinite(tensors["shard.0.theta"]).all()


def test_resuming_a_finished_run_changes_nothing(cli: Cli) -> None:
    cli("run", "small.toml")
    before = load_file("runs/small/params.safetensors")
    assert cli("run", "small.toml", "--resume").code == 0
    after = load_file("runs/small/params.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in after)


def test_resume_starts_where_nothing_has_been_started(cli: Cli) -> None:
    assert cli("run", "small.toml", "--resume").code == 0


def test_wall_time_goes_on_after_a_resume(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    def counting() -> float:
        clock[0] += 1.0
        return clock[0]

    class Killed(Exception):
        pass

    def kill(tick: Tick) -> None:
        if tick.updates > 30:
            raise Killed

    monkeypatch.setattr("tardigrad.engine.drive.time", SimpleNamespace(perf_counter=counting))
    spec = Spec.load("small.toml", ["checkpoint_every=15"])
    with pytest.raises(Killed):
        run(spec, "run", begin=lambda schedule: kill)
    _, facts = load_checkpoint(Path("run/checkpoint.safetensors"))
    clock[0] += 1000  # the time in which it did not run does not count
    done = run(spec, "run", resume=True)
    walls = done.history.column("wall_s")
    assert walls == sorted(walls)
    saved = [record["wall_s"] for record in done.history.records if record["update"] <= 30]
    assert saved[-1] <= facts["wall_s"] < walls[len(saved)] < walls[-1] < 100
    summary = json.loads(Path("run/summary.json").read_text())
    assert walls[-1] <= summary["wall_s"] < 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["task.validation=0"], "has only 'train': use splits=['train'], splits=[]"),
        (["task.validation=0", "splits=['train','test']"], "to evaluate on 'test', but the task"),
    ],
)
def test_a_split_that_is_not_there_is_told_before_anything_is_written(
    cli: Cli, changes: list[str], message: str
) -> None:
    for words in (["run", "small.toml"], ["run", "small.toml", "--on", "ray"]):
        said = cli(*words, *changes)
        assert said.code == 2
        assert message in said.err
    assert message in cli("compare", "small.toml", *changes, "--rules", "sgd").err
    assert [path.name for path in Path().iterdir()] == ["small.toml"]
    said = cli("run", "small.toml", "task.validation=0", "splits=[]")
    assert said.code == 0
    assert "mean over the last batches" in said.out
    assert cli("run", "small.toml", "task.validation=0", "evaluate_every=0", "--out", "b").code == 0
