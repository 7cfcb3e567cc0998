"""One result, whatever made it: the same `Run`, the same folder, plotted, loaded and replayed."""

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import tardigrad as tg
from tardigrad.engine.result_files import RECORD, save_result
from tardigrad.experiment import Spec, run
from tardigrad.report import load_series, title_of
from tests.cli.command_line import SMALL, Cli

RULE = tg.rules.Rule(0.05, tg.rules.Sgd(0.9), ema=0.9)


def make_task() -> tg.ModuleTask:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    draw = torch.Generator().manual_seed(1)
    data = torch.randn(64, 5, generator=draw), torch.randint(3, (64,), generator=draw)
    return tg.ModuleTask(net, "cross_entropy", data, batch_size=8)


def simulated(folder: Path | None, **options: Any) -> tg.Run:
    saving = None if folder is None else tg.Checkpoints(folder)
    usual = {"updates": 30, "evaluation": tg.Evaluation(10, ("train",)), "shards": 2}
    return tg.simulate(
        make_task(), RULE, cluster=tg.Gamma(workers=3), checkpoints=saving, **{**usual, **options}
    )


def of_a_spec(folder: Path, **changes: Any) -> tg.Run:
    path = folder.parent / "small.toml"
    path.write_text(SMALL)
    words = [f"{key}={value}" for key, value in changes.items()]
    return run(Spec.load(path, ["evaluate_every=20", *words]), folder)


def check_same(run: tg.Run, other: tg.Run) -> None:
    """But for the task and the rule."""
    assert torch.equal(run.params, other.params)
    assert run.params.dtype == other.params.dtype
    assert len(run.buffers) == len(other.buffers)
    for one, two in zip(run.buffers, other.buffers, strict=True):
        assert torch.equal(one, two)
        assert one.dtype == two.dtype
    assert (run.average is None) == (other.average is None)
    if run.average is not None and other.average is not None:
        assert torch.equal(run.average, other.average)
    assert run.history == other.history
    assert run.schedule == other.schedule
    assert run.traffic == other.traffic
    assert run.ended == other.ended
    assert run.provenance == other.provenance
    assert repr(run) == repr(other)


MAKERS: dict[str, Callable[[Path], tg.Run]] = {"simulate": simulated, "run": of_a_spec}
FILES = {"schedule.safetensors", "metrics.jsonl", "losses.csv", "params.safetensors"}


@pytest.mark.parametrize("how", MAKERS)
def test_a_folder_gives_back_the_run_that_was_written(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    made = MAKERS[how](folder)
    assert {path.name for path in folder.iterdir()} >= {*FILES, "summary.json"}
    check_same(tg.Run.load(folder, make_task() if how == "simulate" else None), made)
    loaded = tg.Run.load(str(folder))
    check_same(loaded, made)
    if how == "run":
        assert loaded.task is not None
        assert loaded.state_dict().keys() == made.state_dict().keys()
    else:
        with pytest.raises(ValueError, match="does not know its task"):
            loaded.state_dict()


def test_a_loaded_run_gives_the_model_with_its_buffers(tmp_path: Path) -> None:
    made = simulated(tmp_path)
    module = tg.Run.load(tmp_path, make_task()).module()
    assert module.state_dict()["1.num_batches_tracked"] == 30
    for name, tensor in load_file(tmp_path / "params.safetensors").items():
        assert torch.equal(module.state_dict()[name], tensor)
    averaged = tg.Run.load(tmp_path, make_task()).module(average=True).state_dict()
    for name, tensor in made.state_dict(average=True).items():
        assert torch.equal(averaged[name], tensor)


def test_what_was_measured_of_gradients_is_loaded_too(tmp_path: Path) -> None:
    made = of_a_spec(tmp_path / "run", measures='["gap"]', engine="exact")
    assert len(made.history.gap) == 60
    assert tg.Run.load(tmp_path / "run").history == made.history


@pytest.mark.parametrize("how", MAKERS)
@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_a_simulated_run_is_replayed_bit_for_bit(how: str, engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    if how == "run":
        made, given = of_a_spec(folder, engine=engine), {}
    else:
        made, given = simulated(folder, engine=engine), {"task": make_task(), "rule": RULE}
    for replayed in (tg.replay(made), tg.replay(folder, **given)):  # type: ignore[arg-type]
        assert replayed.difference is None
        assert replayed.compared == made.schedule.shards
        assert torch.equal(replayed.run.params, made.params)
    assert tg.replay(folder, until=7, **given).updates == 7  # type: ignore[arg-type]


def test_a_replay_tells_of_other_bits(tmp_path: Path) -> None:
    made = simulated(None)
    made.params[-1] += 1e-6
    wrong = tg.replay(made).difference
    assert wrong is not None
    assert (wrong.shard, wrong.version) == (1, 30)


def test_a_run_that_was_stopped_is_replayed_as_far_as_it_went(tmp_path: Path) -> None:
    made = simulated(tmp_path, engine="exact", stop=tg.Stop(virtual_s=1000.0), updates=200)
    assert made.ended is not None
    assert 0 < made.ended.updates < 200
    check_same(tg.Run.load(tmp_path), made)
    assert tg.replay(made).difference is None
    fast = simulated(None, engine="fast", stop=tg.Stop(virtual_s=1000.0), updates=200)
    with pytest.raises(ValueError, match=r'fast engine, .* made with engine="exact"'):
        tg.replay(fast)


def test_a_replay_without_task_or_rule_says_what_to_give(tmp_path: Path) -> None:
    simulated(tmp_path)
    with pytest.raises(ValueError, match=r"made in Python, .* task=task, rule=rule\)"):
        tg.replay(tmp_path)
    with pytest.raises(ValueError, match=r"tg.Run.load\(folder, task=task, rule=rule\)"):
        tg.replay(tg.Run.load(tmp_path))


def test_changed_code_is_named_before_a_simulated_run_is_replayed(tmp_path: Path) -> None:
    rule = tmp_path / "own_rule.py"
    file = tmp_path / "own.toml"
    words = SMALL.replace('name = "sgd"\nlr = 0.05', f'name = "{rule}:own_class"')
    rule.write_text(
        "import tardigrad as tg\n"
        "from tardigrad.rules import Raw\n"
        "class Own(Raw):\n    '''Its own.'''\n"
        "def own_class():\n    return tg.rules.Rule(0.05, tg.rules.Sgd(), Own())\n"
    )
    file.write_text(words)
    run(Spec.load(file), tmp_path / "run")
    assert tg.replay(tmp_path / "run").difference is None
    rule.write_text(rule.read_text() + "# changed\n")
    with pytest.raises(ValueError, match=r"own_rule.py has changed: .*--force"):
        tg.replay(tmp_path / "run")
    assert tg.replay(tmp_path / "run", force=True).difference is None


@pytest.mark.parametrize("how", MAKERS)
def test_report_and_replay_take_any_folder(how: str, tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "run"
    MAKERS[how](folder)
    said = cli("report", str(folder))
    assert (said.code, said.err) == (0, "")
    assert (folder / "loss_by_time.png").exists()
    assert (folder / "timeline.png").exists()
    said = cli("replay", str(folder))
    if how == "run":
        assert said.code == 0
        assert "identical bit for bit: 60 updates executed again, 1 digests compared" in said.out
        said = cli("replay", str(folder), "--until", "10")
        assert "10 updates executed again; nothing was recorded of them" in said.out
    else:
        assert said.code == 2
        assert "give the task and the rule it was made with, tg.replay(" in said.err
        assert title_of(folder) == "Sequential, 3 workers (Gamma), Async"
        assert load_series(folder)[0].label == "Sgd"


def test_a_run_that_has_not_finished_says_what_to_type(tmp_path: Path) -> None:
    class Stopped(tg.Observer):
        def updated(self, tick: tg.Tick) -> None:
            if tick.updates >= 20:
                raise KeyboardInterrupt

    folder = tmp_path / "python"
    with pytest.raises(KeyboardInterrupt):
        simulated(folder, observers=[Stopped()])
    with pytest.raises(ValueError, match=r"was stopped: finish it by .*resume=True\)"):
        tg.Run.load(folder)
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    with pytest.raises(KeyboardInterrupt):
        run(Spec.load(path), tmp_path / "spec", observers=[Stopped()])
    with pytest.raises(ValueError, match=r"was stopped: finish it \(tardigrad run .* --resume\)"):
        tg.Run.load(tmp_path / "spec")
    (tmp_path / "spec/summary.json").unlink()
    with pytest.raises(ValueError, match=r"has not stopped yet, or was killed: finish it"):
        tg.replay(tmp_path / "spec")
    with pytest.raises(ValueError, match=r"empty holds no run .*tg.simulate or tg.train"):
        tg.Run.load(tmp_path / "empty")


def test_a_run_that_diverged_says_so(tmp_path: Path) -> None:
    with pytest.raises(tg.Diverged):
        tg.simulate(
            make_task(),
            tg.rules.sgd(lr=1e30),
            cluster=tg.Gamma(workers=3),
            checkpoints=tg.Checkpoints(tmp_path),
        )
    with pytest.raises(ValueError, match="holds a run that diverged"):
        tg.Run.load(tmp_path)


def test_a_run_that_is_being_made_longer_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    of_a_spec(tmp_path / "run")
    longer = tg.schedule(cluster=tg.Gamma(workers=4), updates=70)
    longer.save(tmp_path / "run/schedule.safetensors")
    with pytest.raises(ValueError, match="has been made longer and has not finished: finish it"):
        tg.Run.load(tmp_path / "run")


def test_a_file_without_the_order_of_tensors_is_refused(tmp_path: Path) -> None:
    simulated(tmp_path)
    path = tmp_path / "params.safetensors"
    save_file(load_file(path), path)
    with pytest.raises(ValueError, match=r"did not note the order .*load_file"):
        tg.Run.load(tmp_path)
    path.unlink()
    with pytest.raises(ValueError, match="is not a whole file of parameters"):
        tg.Run.load(tmp_path)


def test_another_task_is_refused(tmp_path: Path) -> None:
    simulated(tmp_path)
    other = tg.FunctionTask(torch.ones(3), lambda view, worker, step: view)
    with pytest.raises(ValueError, match="which is not what the task has"):
        tg.Run.load(tmp_path, other)


def test_two_kinds_of_run_do_not_share_a_folder(tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text("{}")
    with pytest.raises(ValueError, match="holds a run on Ray: write elsewhere"):
        simulated(tmp_path)


def test_a_run_in_python_is_gone_on_with_in_python(tmp_path: Path, cli: Cli) -> None:
    simulated(tmp_path / "run")
    (tmp_path / "small.toml").write_text(SMALL)
    said = cli("run", str(tmp_path / "small.toml"), "--out", str(tmp_path / "run"), "--resume")
    assert said.code == 2
    assert "made in Python" in said.err
    assert "resume=True" in said.err


@pytest.mark.parametrize("ending", ["png", "pdf", "svg"])
def test_a_plot_is_a_figure_and_a_file(ending: str, tmp_path: Path) -> None:
    made = simulated(None)
    path = tmp_path / f"loss.{ending}"
    figure = made.plot(path)
    assert isinstance(figure, matplotlib.figure.Figure)
    assert path.stat().st_size > 1000
    (axes,) = figure.axes
    assert axes.get_title(loc="left") == "Sequential, 3 workers (Gamma), Async"
    assert axes.get_xlabel() == "virtual time (s)"
    assert axes.get_ylabel() == "train loss"
    x, y = axes.lines[0].get_data()
    assert np.array_equal(x, made.history.column("time_s"))
    assert np.array_equal(y, made.history.column("train_loss"))
    assert list(made.plot(by="update").axes[0].lines[0].get_xdata()) == [0, 10, 20, 30]


def test_without_evaluations_batch_losses_are_plotted() -> None:
    made = simulated(None, evaluation=0)
    (axes,) = made.plot(by="update").axes
    assert axes.get_ylabel() == "batch loss"
    x, y = axes.lines[0].get_data()
    assert list(x) == list(range(1, 31))
    assert list(y) == made.history.loss


def test_many_batch_losses_are_plotted_as_means() -> None:
    task = tg.FunctionTask(torch.ones(2), lambda view, worker, step: (view.sum(), view))
    made = tg.simulate(task, tg.rules.sgd(lr=1e-5), cluster=tg.Gamma(workers=2), updates=4000)
    x, y = made.plot(by="update").axes[0].lines[0].get_data()
    assert len(x) == 2000
    assert y[7] == pytest.approx((made.history.loss[14] + made.history.loss[15]) / 2)


def test_what_cannot_be_plotted_is_told_and_shown_as_text(tmp_path: Path) -> None:
    task = tg.FunctionTask(torch.ones(3), lambda view, worker, step: view)
    made = tg.simulate(task, tg.rules.sgd(lr=0.1), cluster=tg.Gamma(workers=2), updates=4)
    with pytest.raises(ValueError, match="nothing to plot"):
        made.plot()
    assert made._repr_html_() == f"<pre>{html.escape(repr(made))}</pre>"
    with pytest.raises(ValueError, match=r"end it in .png, .pdf or .svg"):
        simulated(None).plot(tmp_path / "loss.xyz")
    with pytest.raises(ValueError, match="by must be one of 'time', 'update'"):
        simulated(None).plot(by="step")  # type: ignore[arg-type]


def test_a_notebook_shows_text_that_is_escaped_and_a_small_picture() -> None:
    made = simulated(None)
    made.history.records[-1]["<script>"] = 1.0
    shown = made._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert shown.count("<img") == 1
    assert "data:image/png;base64," in shown
    assert len(shown) < 100_000


def test_a_file_that_was_written_before_is_replaced_by_a_longer_run(tmp_path: Path) -> None:
    simulated(tmp_path)
    made = simulated(tmp_path / "longer", updates=50)
    save_result(tmp_path, made, 1.5)
    check_same(tg.Run.load(tmp_path), made)
    save_result(tmp_path, made, 1.5, imposed=True)
    check_same(tg.Run.load(tmp_path), made)
