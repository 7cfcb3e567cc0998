"""The fast engine's promises: same bits however it is cut or resumed, and refusals before a run."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tardigrad as tg
from tardigrad.core.layout import Layout
from tardigrad.engine.choose import WORTH_COMPILING
from tardigrad.engine.fast import build_on_cpu, cpu_stream, view_places
from tardigrad.engine.fast.batches import just_in_time
from tardigrad.engine.fast.view_places import assign_slots, in_blocks_or_slots
from tardigrad.engine.job import Job
from tardigrad.engine.kernels import compiler
from tardigrad.engine.memory import GIB, machine_bytes, predicted_bytes
from tardigrad.rules import Now, Optimizer, Rule, Signal
from tardigrad.tasks import ModuleTask, quadratic
from tardigrad.tasks.module import initialised
from tests.engine.fast_cases import (
    CHUNK,
    POLICY_CASES,
    RULE_CASES,
    Stop,
    bits,
    run,
    stop_after,
    task,
)

UPDATES = 150


@pytest.mark.parametrize("measures", [[], ["gap"]])
@pytest.mark.parametrize("name", ["gamma", "uniform", "no wait", "shards", "sync", "backup"])
@pytest.mark.parametrize("rule", ["gap_aware", "dana"])
def test_twice_and_resumed_give_the_same_bits(
    name: str, rule: str, measures: list[str], tmp_path: Path
) -> None:
    policy, cluster, shards = POLICY_CASES[name]
    schedule = tg.schedule(policy, cluster, updates=UPDATES, shards=shards, seed=6)
    measured, saving = tg.Evaluation(50, measures=measures), tg.Checkpoints(tmp_path, 7, True)
    whole = run(schedule, RULE_CASES[rule], "fast", evaluation=measured)
    assert bits(run(schedule, RULE_CASES[rule], "fast", evaluation=measured)) == bits(whole)
    for updates in (10, 61, 149):  # checkpoints fall inside batches and windows
        with pytest.raises(Stop):
            run(
                schedule,
                RULE_CASES[rule],
                "fast",
                evaluation=measured,
                checkpoints=saving,
                watch=stop_after(updates),
            )
    resumed = run(schedule, RULE_CASES[rule], "fast", evaluation=measured, checkpoints=saving)
    assert bits(resumed) == bits(whole)


@pytest.mark.parametrize("rule", ["gap_aware", "dana", "composed"])
@pytest.mark.parametrize("name", ["gamma", "uniform", "no wait"])
def test_however_views_wait_the_bits_are_the_same(
    name: str, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks, gathered from slots, or with everything that several shards would need."""
    policy, cluster, _ = POLICY_CASES[name]
    schedule = tg.schedule(policy, cluster, updates=UPDATES, seed=6)
    found = {}
    monkeypatch.setattr(cpu_stream, "DRAWN", 5)  # batches begin and end anywhere in what is drawn
    for room in (0.0, 100.0):
        placed = partial(view_places.in_blocks_or_slots, room=room, small_bytes=0)
        assert (placed(schedule, just_in_time(schedule, CHUNK), 8).blocks is None) == (room == 0)
        monkeypatch.setattr(build_on_cpu, "in_blocks_or_slots", placed)
        found[room] = run(schedule, RULE_CASES[rule], "fast")
    general = run(schedule, RULE_CASES[rule], "fast", evaluation=tg.Evaluation(measures=["gap"]))
    for other in (found[0.0], general):
        assert torch.equal(other.params, found[100.0].params)
        assert other.history.loss == found[100.0].history.loss


@pytest.mark.parametrize("batch_norm", [False, True])
def test_where_evaluations_fall_changes_no_bit(batch_norm: bool) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=UPDATES)
    on = task("float32", batch_norm)
    never = run(schedule, RULE_CASES["dana_ga"], "fast", task=on)
    for every in (1, 7):
        often = run(schedule, RULE_CASES["dana_ga"], "fast", task=on, evaluation=every)
        assert torch.equal(often.params, never.params)
        assert often.history.loss == never.history.loss
        assert len(often.history.records) == -(-UPDATES // every) + 1


def test_a_gradient_that_is_one_number_spread_out_is_applied_as_a_whole() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scale = nn.Linear(12, 3), nn.Parameter(torch.linspace(0, 0.3, 7))

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) * self.scale.sum()

    of = ModuleTask(initialised(Scaled, 0), "cross_entropy", task().data, 5, dtype="float64")
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    fast = run(schedule, RULE_CASES["sgd"], "fast", task=of)
    exact = run(schedule, RULE_CASES["sgd"], "exact", task=of)
    assert (fast.params - exact.params).abs().max() <= 1e-12


def test_a_checkpoint_goes_on_only_as_what_it_was(tmp_path: Path) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=40)
    rule = RULE_CASES["fasgd"]
    saving = tg.Checkpoints(tmp_path)
    run(schedule, rule, "fast", checkpoints=saving)
    saving = replace(saving, resume=True)
    with pytest.raises(ValueError, match=r"made by the fast engine.*engine = 'fast'"):
        run(schedule, rule, "exact", checkpoints=saving)
    with pytest.raises(ValueError, match=f"this is chunk = 2.*: resume with chunk = {CHUNK}"):
        run(schedule, rule, "fast", checkpoints=saving, limits=tg.Limits(chunk=2))
    gaps = tg.Evaluation(measures=["gap"])
    with pytest.raises(ValueError, match="other form of the fast engine, which measures"):
        run(schedule, rule, "fast", checkpoints=saving, evaluation=gaps)
    other = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=40, seed=9)
    with pytest.raises(ValueError, match="another schedule"):
        run(other, rule, "fast", checkpoints=saving)
    with pytest.raises(ValueError, match="another rule or task"):
        run(schedule, RULE_CASES["adam"], "fast", checkpoints=saving)


def test_windows_that_are_only_as_many_are_refused(tmp_path: Path) -> None:
    """Two chunks may cut a schedule into equally many batches that end elsewhere."""
    cluster = tg.Gamma(workers=12, heterogeneous=True)
    schedule = tg.schedule(tg.Async(), cluster, updates=19, seed=86)
    options: dict[str, Any] = {"checkpoints": tg.Checkpoints(tmp_path, every=14, resume=True)}
    four, eight = tg.Limits(chunk=4), tg.Limits(chunk=8)
    with pytest.raises(Stop):
        run(schedule, RULE_CASES["sgd"], "fast", limits=four, watch=stop_after(15), **options)
    with pytest.raises(ValueError, match=r"this is chunk = 8.*: resume with chunk = 4"):
        run(schedule, RULE_CASES["sgd"], "fast", limits=eight, **options)


def test_a_run_goes_on_with_the_chunk_it_began_with_or_says_which(tmp_path: Path) -> None:
    """Seven batches of at most 9, 10 or 11 gradients: how many there are tells nothing."""
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=12), updates=60, shards=2)
    options: dict[str, Any] = {"task": quadratic(10, noise=0.1)}
    options["checkpoints"] = tg.Checkpoints(tmp_path, every=7, resume=True)
    nine = tg.Limits(chunk=9)
    with pytest.raises(Stop):
        run(schedule, RULE_CASES["fasgd"], "fast", limits=nine, watch=stop_after(15), **options)
    for other in (2, 10, 11):
        with pytest.raises(ValueError, match=f"chunk = {other}, .*: resume with chunk = 9, or"):
            run(schedule, RULE_CASES["fasgd"], "fast", limits=tg.Limits(chunk=other), **options)
    ended = run(schedule, RULE_CASES["fasgd"], "fast", limits=tg.Limits(), **options)
    whole = run(schedule, RULE_CASES["fasgd"], "fast", limits=nine, task=options["task"])
    assert torch.equal(ended.params, whole.params)


def test_a_loss_that_is_not_a_number_stops_the_run_at_its_update() -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=60)

    def diverges(view: Tensor, worker: int, step: int) -> tuple[Tensor, Tensor]:
        return torch.tensor(float("nan") if step == 5 else 1.0), view

    on = tg.FunctionTask(torch.ones(3, dtype=torch.float64), diverges)
    found = []
    for engine in ("exact", "fast"):
        with pytest.raises(tg.Diverged) as raised:
            run(schedule, RULE_CASES["sgd"], engine, task=on)
        found.append((raised.value.update, raised.value.worker))
    assert found[0] == found[1]


class Rough(Optimizer[tuple[()], tuple[()]]):
    """θ ← θ − η g, in one of the ways it must not be written."""

    def __init__(self, how: str) -> None:
        self.how = how

    def step(
        self,
        theta: Tensor,
        state: Any,
        owns: Any,
        slots: Any,
        signals: Sequence[Signal],
        now: Now,
        layout: Layout,
    ) -> Any:
        grad = signals[0].first
        if self.how == "in place":
            return theta.add_(grad * -now.lr), state, tuple(owns)
        if self.how == "random":
            return theta - torch.rand_like(grad), state, tuple(owns)
        return theta - grad * float(now.lr), state, tuple(owns)


@pytest.mark.parametrize("how", ["in place", "random"])
def test_a_rule_that_is_not_pure_is_refused(how: str) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    rule = Rule(0.1, Rough(how))
    with pytest.raises(ValueError, match="the rule is not pure"):
        run(schedule, rule, "fast")


def test_a_rule_that_cannot_be_traced_updates_one_by_one() -> None:
    lines: list[str] = []
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=50)
    rule = Rule(0.1, Rough("float"))
    fast = run(schedule, rule, "fast", say=lines.append)
    exact = run(schedule, rule, "exact")
    assert "updates one by one" in lines[0]
    assert (fast.params - exact.params).abs().max() <= 1e-12


def test_without_a_compiler_the_exact_engine_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    compiler.shared_library.cache_clear()
    lines: list[str] = []
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    done = run(schedule, RULE_CASES["fasgd"], "fast", say=lines.append)
    compiler.shared_library.cache_clear()
    assert lines == [
        "engine: exact, because the fast one cannot do this: there is no C++ compiler (g++)"
    ]
    assert torch.equal(done.params, run(schedule, RULE_CASES["fasgd"], "exact").params)


def test_auto_takes_the_fast_engine_for_long_runs_and_says_so() -> None:
    lines: list[str] = []
    short = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    run(short, RULE_CASES["fasgd"], "auto", say=lines.append, limits=tg.Limits(CHUNK))
    assert lines[-1].startswith("engine: exact, because 20 gradients")
    long = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=WORTH_COMPILING)
    run(long, RULE_CASES["fasgd"], "auto", say=lines.append, limits=tg.Limits(CHUNK))
    assert lines[-1] == "engine: fast"


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (tg.Limits(chunk=10**12), "choose a smaller chunk"),
        (tg.Limits(memory_gib=1e9), "but this machine has"),
    ],
)
@pytest.mark.parametrize("engine", ["exact", "fast"])
def test_budgets_are_checked_before_anything_runs(
    engine: str, limits: tg.Limits, says: str, tmp_path: Path
) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    saving = tg.Checkpoints(tmp_path)
    with pytest.raises(ValueError, match=says):
        run(schedule, RULE_CASES["fasgd"], engine, checkpoints=saving, limits=limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("engine", "memory_gib"), [("exact", 1e-6), ("fast", 1.5e-5)])
def test_a_run_that_does_not_fit_is_refused(engine: str, memory_gib: float) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    with pytest.raises(ValueError, match=r"the run would take .* KiB, .* views of 4 workers"):
        run(schedule, RULE_CASES["fasgd"], engine, limits=tg.Limits(memory_gib=memory_gib))


def test_a_device_that_is_not_there_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(ValueError, match="no GPU here"):
        tg.tasks.logistic_regression(device="cuda")


def test_ten_thousand_workers_of_the_mnist_perceptron_fit_ten_gib() -> None:
    """Predicted for FASGD and Gap-Aware, and never more slots than workers and one."""
    on = tg.FunctionTask(torch.zeros(159_010), lambda view, worker, step: view)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=10_000), updates=25_000)
    batches = just_in_time(schedule, 16)
    slots = assign_slots(schedule, batches, 0).count
    assert slots <= 10_001
    for rule in (tg.rules.fasgd(0.01), tg.rules.gap_aware(0.01)):
        for rows in (slots, in_blocks_or_slots(schedule, batches, 4 * 159_040).count):
            needed = predicted_bytes(Job.on_one_shard(schedule, on, rule), [rows], 16)
            assert 5.9 * GIB < needed < 10 * GIB


def test_the_machine_has_memory() -> None:
    free, whole = machine_bytes(torch.device("cpu"))
    assert 0 < free <= whole
