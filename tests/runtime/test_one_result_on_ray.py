"""Runs on Ray give the same `Run` and the same folder as simulated ones."""

from pathlib import Path

import pytest
import torch

import tardigrad as tg
from tardigrad.cli.report import show_run
from tardigrad.experiment import Spec, run_on_ray
from tardigrad.report import title_of
from tardigrad.runtime import ActorPool
from tests.experiment.test_one_result import FILES, RULE, check_same, make_task
from tests.runtime.test_command_line import SPEC


def trained(folder: Path | None, pool: ActorPool, **options: object) -> tg.Run:
    return tg.train(
        make_task(),
        RULE,
        workers=2,
        shards=2,
        updates=30,
        evaluation=tg.Evaluation(10, ("train",)),
        checkpoints=None if folder is None else tg.Checkpoints(folder),
        processes=tg.Processes(pool=pool),
        **options,  # type: ignore[arg-type]
    )


def test_a_trained_run_is_loaded_reported_and_replayed(tmp_path: Path, pool: ActorPool) -> None:
    made = trained(tmp_path, pool)
    assert {path.name for path in tmp_path.iterdir()} >= {*FILES, "summary.json", "record.json"}
    loaded = tg.Run.load(tmp_path, make_task(), RULE)
    check_same(loaded, made)
    assert loaded.module().state_dict()["1.num_batches_tracked"] == 30
    show_run(tmp_path)
    assert (tmp_path / "loss_by_time.png").exists()
    assert '"clock":{"time":"measured time"' in (tmp_path / "report.html").read_text()
    assert title_of(tmp_path) == "Sequential, 2 workers (Ray), Async"
    assert made.plot().axes[0].get_xlabel() == "measured time (s)"
    for replayed in (
        tg.replay(made),
        tg.replay(loaded),
        tg.replay(tmp_path, task=make_task(), rule=RULE),
    ):
        assert replayed.difference is None
        assert replayed.compared == 2
        assert torch.equal(replayed.run.params, made.params)
    with pytest.raises(ValueError, match=r"made in Python, .* task=task, rule=rule\)"):
        tg.replay(tmp_path)
    with pytest.raises(ValueError, match="holds a run on Ray: write elsewhere"):
        tg.simulate(
            make_task(), RULE, cluster=tg.Gamma(workers=2), checkpoints=tg.Checkpoints(tmp_path)
        )


def test_a_trained_run_without_a_folder_is_replayed_too(pool: ActorPool) -> None:
    assert tg.replay(trained(None, pool)).difference is None


def test_a_spec_on_ray_is_loaded_with_its_task(tmp_path: Path, pool: ActorPool) -> None:
    (tmp_path / "real.toml").write_text(SPEC)
    made = run_on_ray(Spec.load(tmp_path / "real.toml"), tmp_path / "run", pool=pool)
    loaded = tg.Run.load(tmp_path / "run")
    check_same(loaded, made)
    assert loaded.state_dict().keys() == made.state_dict().keys()
    assert tg.replay(loaded).difference is None
    assert tg.replay(tmp_path / "run").difference is None


def test_a_run_that_was_stopped_says_how_to_finish_it(tmp_path: Path, pool: ActorPool) -> None:
    def stop(live: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "python", pool, watch=stop)
    with pytest.raises(ValueError, match=r"was stopped: finish it by .*resume=True\)"):
        tg.Run.load(tmp_path / "python")
    (tmp_path / "real.toml").write_text(SPEC)
    spec = Spec.load(tmp_path / "real.toml")
    with pytest.raises(KeyboardInterrupt):
        run_on_ray(spec, tmp_path / "spec", pool=pool, watch=stop)
    with pytest.raises(ValueError, match=r"was stopped: finish it .* --on ray .*--resume"):
        tg.Run.load(tmp_path / "spec")
    with pytest.raises(ValueError, match=r"has not finished: finish it .* --on ray .*--resume"):
        tg.replay(tmp_path / "spec")


def test_a_folder_of_a_simulated_run_is_not_written_over(tmp_path: Path, pool: ActorPool) -> None:
    (tmp_path / "checkpoint.safetensors").write_text("")
    with pytest.raises(ValueError, match="holds a simulated run: write elsewhere"):
        trained(tmp_path, pool)
