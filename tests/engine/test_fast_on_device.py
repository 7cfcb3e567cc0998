"""The fast engine on a GPU: equal to the exact one there, and the same bits however it is cut."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import tardigrad as tg
from tardigrad.tasks import ModuleTask
from tardigrad.tasks.module import initialised
from tests.engine.fast_cases import POLICY_CASES, RULE_CASES, Stop, bits, run, stop_after, task

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")

WHOLE_TENSORS = ("gap_layer", "gap_global", "muon")
ELEMENTWISE = [name for name in RULE_CASES if name not in WHOLE_TENSORS]


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_every_rule_in_a_closed_loop(name: str, batch_norm: bool) -> None:
    """Batched graphs, and with BatchNorm side by side."""
    on = task(batch_norm=batch_norm, device="cuda")
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=200)
    lines: list[str] = []
    fast = run(schedule, RULE_CASES[name], "fast", task=on, say=lines.append, evaluation=70)
    exact = run(schedule, RULE_CASES[name], "exact", task=on, evaluation=70)
    assert lines[-1] == "engine: fast"
    assert (fast.params - exact.params).abs().max() <= 1e-9 * exact.params.abs().max()
    np.testing.assert_allclose(fast.history.loss, exact.history.loss, rtol=1e-9)
    # By the largest, as parameters are: a mean near 0 is no more exact than those it is made from.
    for ours, theirs in zip(fast.buffers, exact.buffers, strict=True):
        assert (ours - theirs).abs().max() <= 1e-9 * theirs.abs().max()
    for one, other in zip(fast.history.records, exact.history.records, strict=True):
        assert one["validation_loss"] == pytest.approx(other["validation_loss"], rel=1e-9)


@pytest.mark.parametrize("name", POLICY_CASES)
def test_every_policy_runs_fast_or_says_why_not(name: str) -> None:
    policy, cluster, shards = POLICY_CASES[name]
    on = task(device="cuda")
    schedule = tg.schedule(policy, cluster, updates=200, shards=shards, seed=3)
    lines: list[str] = []
    fast = run(schedule, RULE_CASES["dana_ga"], "fast", task=on, say=lines.append)
    assert lines[-1].startswith("engine: ")
    exact = run(schedule, RULE_CASES["dana_ga"], "exact", task=on)
    assert (fast.params - exact.params).abs().max() <= 1e-9 * exact.params.abs().max()


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("rule", ["gap_aware", "dana"])
def test_twice_and_resumed_give_the_same_bits(rule: str, batch_norm: bool, tmp_path: Path) -> None:
    on = task("float32", batch_norm=batch_norm, device="cuda")
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=12), updates=300, seed=6)
    options: dict[str, Any] = {"evaluation": 100, "task": on}
    saving = tg.Checkpoints(tmp_path, every=7, resume=True)
    whole = run(schedule, RULE_CASES[rule], "fast", **options)
    assert bits(run(schedule, RULE_CASES[rule], "fast", **options)) == bits(whole)
    plain = run(schedule, RULE_CASES[rule], "fast", task=on)
    assert torch.equal(plain.params, whole.params)
    for updates in (10, 61, 149):
        with pytest.raises(Stop):
            run(
                schedule,
                RULE_CASES[rule],
                "fast",
                checkpoints=saving,
                watch=stop_after(updates),
                **options,
            )
    resumed = run(schedule, RULE_CASES[rule], "fast", checkpoints=saving, **options)
    assert bits(resumed) == bits(whole)


class Drawing(nn.Module):
    """Convolutions, so side by side; and a draw that no layer tells of."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.conv, self.classes = nn.Conv1d(1, 4, 3), nn.Linear(40, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x[:, None])).flatten(1)
        if self.how == "torch":
            x = F.dropout(x, 0.5)
        elif self.how == "random":
            x = x * 2 if random.random() < 0.5 else x
        elif self.how == "numpy":
            x = x * float(1 + np.random.rand())
        return self.classes(x)


@pytest.mark.parametrize("how", ["torch", "random", "numpy", "nothing"])
def test_a_model_that_draws_is_not_captured(how: str) -> None:
    data = task(device="cuda").data
    module = initialised(lambda: Drawing(how), 0)
    on = ModuleTask(module, "cross_entropy", data, 5, dtype="float64", device="cuda")
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=60)
    lines: list[str] = []
    state = torch.cuda.get_rng_state()
    fast = run(schedule, RULE_CASES["sgd"], "fast", task=on, say=lines.append, evaluation=20)
    exact = run(schedule, RULE_CASES["sgd"], "exact", task=on, evaluation=20)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    assert (lines[-1] == "engine: fast") == (how == "nothing")
    assert how == "nothing" or "generator" in lines[-1]
    assert (fast.params - exact.params).abs().max() <= 1e-9 * exact.params.abs().max()
    again = run(schedule, RULE_CASES["sgd"], "exact", task=on, evaluation=20)
    assert torch.equal(again.params, exact.params)
    losses = [r.history.column("validation_loss") for r in (exact, again)]
    assert losses[0] == losses[1]
