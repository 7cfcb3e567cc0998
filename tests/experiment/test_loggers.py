"""Loggers of [log]: what they write is read back with the tools' own readers."""

import builtins
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import tardigrad as tg
from tardigrad.experiment import Spec, run
from tardigrad.tasks import quadratic
from tests.cli.command_line import Cli
from tests.experiment.own_files import forgotten
from tests.experiment.test_control_of_runs import KillAt, Killed, spec


def scalars(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Every curve as TensorBoard shows it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of TensorBoard's own
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(folder))
        events.Reload()
    return {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }


def test_tensorboard_shows_every_evaluation_once_after_a_kill(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    small = spec(evaluate_every=10, checkpoint_every=25, log="tensorboard")
    with pytest.raises(Killed):
        run(small, folder, observers=[KillAt(44, folder)])
    assert [step for step, _ in scalars(folder / "tensorboard")["validation_loss"]] == [
        0, 10, 20, 30, 40,
    ]  # fmt: skip
    done = run(small, folder, resume=True)
    curves = scalars(folder / "tensorboard")
    steps, losses = zip(*curves["validation_loss"], strict=True)
    assert steps == (0, 10, 20, 30, 40, 50, 60)
    assert losses == pytest.approx(done.history.column("validation_loss"))
    assert {"batch_loss", "validation_accuracy", "epoch", "wall_s"} <= set(curves)


def test_a_logger_is_an_observer_in_python_too(tmp_path: Path) -> None:
    board = tg.TensorBoard(tmp_path)
    task = quadratic(dimension=4)
    tg.simulate(
        task,
        tg.rules.sgd(0.1),
        cluster=tg.Gamma(workers=2),
        updates=20,
        evaluation=10,
        observers=[board],
    )
    assert [step for step, _ in scalars(tmp_path)["validation_loss"]] == [0, 10, 20]


@pytest.mark.parametrize("name", ["tensorboard", "wandb", "mlflow"])
def test_an_extra_that_is_not_installed_is_named_before_anything_is_written(
    cli: Cli, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # so that importing it fails
    said = cli("run", "small.toml", f"log={name}")
    assert said.code == 2
    assert f"{name} is not installed here" in said.err
    assert f"pip install 'tardigrad[{name}]'" in said.err
    assert [path.name for path in Path().iterdir()] == ["small.toml"]


def test_no_extra_is_imported_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = builtins.__import__

    def noted(name: str, *rest: Any) -> Any:
        asked.append(name.split(".")[0])
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", noted)
    spec().make_loggers(Path("run"))
    assert not {"tensorboard", "wandb", "mlflow"} & set(asked)


def test_several_loggers_and_their_arguments_stand_in_the_spec() -> None:
    told = [{"name": "tensorboard"}, {"name": "wandb", "project": "late"}]
    made = spec(log=["tensorboard", {"name": "wandb", "project": "late"}])
    assert made.data()["log"] == told
    assert Spec.of(made.data()) == made
    assert "log" not in spec().data()
    assert spec(log={"name": "mlflow"}) == spec(log="mlflow")


@pytest.mark.filterwarnings("ignore")  # of its own
def test_weights_and_biases_writes_here_without_a_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "run"
    run(spec(evaluate_every=30, log="wandb"), folder)
    (kept,) = (folder / "wandb").rglob("*.wandb")
    assert b"validation_loss" in kept.read_bytes()
    with pytest.raises(ValueError, match="wandb is not logged in here: type `wandb login`"):
        run(spec(log={"name": "wandb", "mode": "online"}), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.filterwarnings("ignore")  # of its own
def test_mlflow_goes_on_with_its_run(tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    folder = tmp_path / "run"
    small = spec(evaluate_every=10, checkpoint_every=25, log="mlflow")
    with pytest.raises(Killed):
        run(small, folder, observers=[KillAt(44, folder)])
    run(small, folder, resume=True)
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("tardigrad").experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["rule.lr"] == "0.05"
    assert found.data.tags["ended_by"] == "updates"
    steps = {m.step for m in client.get_metric_history(found.info.run_id, "validation_loss")}
    assert steps == {0, 10, 20, 30, 40, 50, 60}


def test_a_logger_of_ones_own_is_found_from_the_folder_of_the_spec(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/own_logger.py").write_text(
        "from pathlib import Path\n"
        "import tardigrad as tg\n"
        "class Log(tg.Observer):\n"
        "    def __init__(self, folder: Path):\n        self.folder = folder\n"
        "    def ended(self, end):\n        self.folder.mkdir()\n"
    )
    text = "log = 'own_logger.py:Log'\n" + (tmp_path / "small.toml").read_text()
    (tmp_path / "sub/a.toml").write_text(text)
    with forgotten(tmp_path):
        assert cli("run", "sub/a.toml", "updates=20", "--out", "r").code == 0
        assert (tmp_path / "r/own_logger.py").is_dir()
        monkeypatch.chdir(tmp_path / "r")
        assert cli("replay", ".").code == 0
        assert cli("run", "spec.toml", "log=[]", "--out", ".", "--resume").code == 0
        monkeypatch.chdir(tmp_path / "sub")
        assert cli("run", "a.toml", "log=own_logger.py:Log", "--out", "r").code == 0
