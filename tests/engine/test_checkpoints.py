"""Checkpoints: whole or refused, of this run or refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import tardigrad as tg
from tardigrad.engine.checkpoint import load_checkpoint, save_checkpoint
from tardigrad.tasks import quadratic

MADE = tg.Schedule.from_order([0, 1, 0, 1, 1, 0] * 5, 2)
RULE = tg.rules.gap_aware(0.05)


def task(size: int = 5) -> tg.FunctionTask:
    return tg.FunctionTask(
        torch.linspace(1, 2, size), lambda view, worker, step: torch.sin(view) + 0.1 * worker
    )


def execute(
    folder: Path, rule: tg.Rule = RULE, every: int = 0, resume: bool = False, **options: Any
) -> tg.Run:
    made, what = options.pop("made", MADE), options.pop("task", task())
    saving = tg.Checkpoints(folder, every, resume)
    return tg.execute(made, what, rule, engine="exact", checkpoints=saving, **options)


@pytest.fixture(name="checkpoint")
def finished_run(tmp_path: Path) -> Path:
    execute(tmp_path, every=7)
    return tmp_path / "checkpoint.safetensors"


def test_a_folder_may_be_a_string_and_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saving = tg.Checkpoints("new/one")
    tg.simulate(task(), RULE, cluster=tg.Gamma(workers=2), updates=4, checkpoints=saving)
    assert load_checkpoint(Path("new/one/checkpoint.safetensors"))[1]["position"] == 4
    saving = tg.Checkpoints("two", every=7)
    again = tg.execute(MADE, task(), RULE, engine="exact", checkpoints=saving)
    going_on = replace(saving, resume=True)
    resumed = tg.execute(MADE, task(), RULE, engine="exact", checkpoints=going_on)
    assert torch.equal(again.params, resumed.params)


def test_tensors_and_facts_come_back_equal(tmp_path: Path) -> None:
    shared = torch.arange(6.0)
    tensors = {"a": shared, "alias": shared[2:], "b": torch.eye(3, dtype=torch.float64).t()}
    facts = {"position": 3, "loss": [0.1, float("inf")], "name": "θ"}
    save_checkpoint(tmp_path / "c", tensors, facts)
    loaded, again = load_checkpoint(tmp_path / "c")
    assert again == facts
    assert {name: t.dtype for name, t in loaded.items()} == {
        name: t.dtype for name, t in tensors.items()
    }
    assert all(torch.equal(loaded[name], tensors[name]) for name in tensors)


def test_tensors_come_back_to_where_torch_aligns_them(tmp_path: Path) -> None:
    """The file packs them, and the bits of a dot product depend on where a vector lies."""
    tensors = {f"{n}": torch.linspace(0, 1, n, dtype=torch.float64) for n in range(1, 20)}
    save_checkpoint(tmp_path / "c", tensors, {})
    loaded, _ = load_checkpoint(tmp_path / "c")
    assert {tensor.data_ptr() % 64 for tensor in loaded.values()} == {0}


def test_a_loss_that_is_a_product_resumes_to_the_same_bits(tmp_path: Path) -> None:
    """A resumed run computes at views that come out of the checkpoint."""
    bowl = quadratic(dimension=11, noise=0.1, dtype="float64")
    made = tg.schedule(tg.Async(), tg.Exponential(workers=5), 40)
    whole = tg.execute(made, bowl, RULE, "exact")
    for update in range(1, 40, 3):

        def stop(tick: Any, at: int = update) -> None:
            if tick.updates == at:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            execute(tmp_path / f"{update}", made=made, task=bowl, every=1, watch=stop)
        again = execute(tmp_path / f"{update}", made=made, task=bowl, resume=True)
        assert again.history.loss == whole.history.loss


def test_a_finished_run_resumes_to_itself(checkpoint: Path, tmp_path: Path) -> None:
    ticks: list[Any] = []
    again = execute(checkpoint.parent, resume=True, watch=ticks.append)
    assert not ticks
    assert torch.equal(again.params, execute(tmp_path / "another").params)


def test_resuming_where_nothing_was_saved_starts_at_the_beginning(tmp_path: Path) -> None:
    fresh = execute(tmp_path, resume=True)
    assert len(fresh.history.loss) == MADE.updates


def test_a_kill_while_saving_leaves_the_last_whole_one(checkpoint: Path) -> None:
    """The new one is written beside the old and renamed; half of it changes nothing."""
    tensors, facts = load_checkpoint(checkpoint)
    half = checkpoint.read_bytes()[:100]
    checkpoint.with_name(checkpoint.name + ".partial").write_bytes(half)
    execute(checkpoint.parent, resume=True)
    again, same_facts = load_checkpoint(checkpoint)
    assert same_facts.pop("wall_s") >= facts.pop("wall_s")
    assert same_facts == facts
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    assert not list(checkpoint.parent.glob("*.partial"))


def test_a_truncated_checkpoint_is_refused(checkpoint: Path) -> None:
    whole = checkpoint.read_bytes()
    for size in (0, 7, 100, len(whole) - 1):
        checkpoint.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"checkpoint\.safetensors is not a"):
            execute(checkpoint.parent, resume=True)
        assert checkpoint.stat().st_size == size


def test_another_file_is_refused(checkpoint: Path) -> None:
    save_file({"x": torch.zeros(3)}, checkpoint)
    with pytest.raises(ValueError, match="is not a tardigrad-checkpoint-1 file"):
        execute(checkpoint.parent, resume=True)
    with pytest.raises(ValueError, match="is not a whole checkpoint"):
        load_checkpoint(checkpoint.parent / "nowhere")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"made": tg.Schedule.from_order([0, 1, 1] * 10, 2)}, "another schedule"),
        ({"made": tg.Schedule.from_order([0, 1] * 40, 2)}, "another schedule"),
        ({"rule": tg.rules.adam(0.05)}, "another rule or task .shard.0.state"),
        ({"rule": tg.rules.sgd(0.05, 0.9)}, "another rule or task .shard.0.state"),
        ({"task": task(6)}, "another rule or task .shard.0.sent"),
    ],
)
def test_another_runs_checkpoint_is_refused_and_kept(
    checkpoint: Path, options: dict[str, Any], message: str
) -> None:
    before = checkpoint.read_bytes()
    with pytest.raises(ValueError, match=message):
        execute(checkpoint.parent, resume=True, **options)
    assert checkpoint.read_bytes() == before


def test_a_checkpoint_that_lacks_a_tensor_is_refused_by_its_name(tmp_path: Path) -> None:
    """As one of another version may, whose rule kept other rows of its workers."""
    dana = tg.rules.dana(0.05)
    execute(tmp_path, dana, every=7)
    path = tmp_path / "checkpoint.safetensors"
    tensors, facts = load_checkpoint(path)
    gone = next(name for name in tensors if ".own." in name)
    save_checkpoint(path, {n: t for n, t in tensors.items() if n != gone}, facts)
    with pytest.raises(ValueError, match=f"does not hold '{gone}': start in a new folder"):
        execute(tmp_path, dana, resume=True)
    del facts["tardigrad"]
    save_checkpoint(path, {n: t for n, t in tensors.items() if n != gone}, facts)
    with pytest.raises(ValueError, match=r"it was made by tardigrad 0\.1, and this is"):
        execute(tmp_path, dana, resume=True)


@pytest.mark.parametrize("more", [-1, 1])
def test_a_link_that_decides_otherwise_now_is_refused(tmp_path: Path, more: int) -> None:
    """It would hear fewer deviations than it did, or more."""
    link, cluster = tg.BandwidthAware(c_push=0.5, c_pull=0.5), tg.Gamma(workers=3)
    options: dict[str, Any] = {"cluster": cluster, "link": link, "updates": 20}
    saving = tg.Checkpoints(tmp_path)
    tg.simulate(task(), tg.rules.fasgd(0.05), checkpoints=saving, **options)
    path = tmp_path / "checkpoint.safetensors"
    tensors, facts = load_checkpoint(path)
    heard = tensors["wire.deviation"]
    tensors["wire.deviation"] = heard[:more] if more < 0 else torch.cat([heard, heard[:more]])
    save_checkpoint(path, tensors, facts)
    saving = replace(saving, resume=True)
    with pytest.raises(ValueError, match=r"the policy and the link decide otherwise .* new folder"):
        tg.simulate(task(), tg.rules.fasgd(0.05), checkpoints=saving, **options)


@pytest.mark.parametrize("every", [0, 7])
def test_a_folder_that_holds_a_run_is_never_overwritten(every: int, tmp_path: Path) -> None:
    """Not by the run that made it either: nothing is lost to a line that is executed twice."""
    execute(tmp_path, every=every)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for rule in (RULE, tg.rules.sgd(0.2)):
        with pytest.raises(ValueError, match="holds a run: go on with it by resume=True, or write"):
            execute(tmp_path, rule, every)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_run_that_was_stopped_is_not_overwritten(tmp_path: Path) -> None:
    def stop(tick: Any) -> None:
        if tick.updates == 9:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        execute(tmp_path, every=4, watch=stop)
    with pytest.raises(ValueError, match="holds a run"):
        execute(tmp_path, every=4)
    assert torch.equal(execute(tmp_path, resume=True).params, execute(tmp_path / "whole").params)


def test_where_a_run_diverged_before_it_was_saved_another_begins(tmp_path: Path) -> None:
    bowl, cluster = quadratic(dimension=5), tg.Gamma(workers=3)
    told = []
    for rate in (1e30, 0.1):
        saving = tg.Checkpoints(tmp_path)
        try:
            tg.simulate(bowl, tg.rules.sgd(rate), cluster=cluster, updates=9, checkpoints=saving)
        except tg.Diverged:
            told.append("diverged")
        told.append(json.loads((tmp_path / "summary.json").read_text())["status"])
    assert told == ["diverged", "diverged", "finished"]
