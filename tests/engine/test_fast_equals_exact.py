"""The fast engine against the exact one: gradients at the same view, and closed loops of few
workers (with many, Gap-Aware makes a last bit grow by itself)."""

from typing import Any

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.engine.fast.gradients import Batched, check_batchable, padded
from tardigrad.engine.job import Job
from tardigrad.engine.unsuited import Unsuited
from tardigrad.policies import Policy
from tardigrad.tasks import Turn
from tests.engine.fast_cases import CHUNK, POLICY_CASES, RULE_CASES, run, task

UPDATES = 200


def same(fast: tg.Run, exact: tg.Run) -> None:
    scale = exact.params.abs().max()
    assert (fast.params - exact.params).abs().max() <= 1e-9 * scale
    np.testing.assert_allclose(fast.history.loss, exact.history.loss, rtol=1e-9)
    assert len(fast.history.gap) == len(exact.history.gap)
    np.testing.assert_allclose(fast.history.gap, exact.history.gap, rtol=1e-8, atol=1e-12)
    for ours, theirs in zip(fast.buffers, exact.buffers, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    assert (fast.average is None) == (exact.average is None)
    if exact.average is not None and fast.average is not None:
        assert (fast.average - exact.average).abs().max() <= 1e-9 * scale
    for one, other in zip(fast.history.records, exact.history.records, strict=True):
        assert one.keys() == other.keys()
        for name in one.keys() - {"wall_s"}:
            assert one[name] == pytest.approx(other[name], rel=1e-9)


@pytest.mark.parametrize("count", [1, 3, 4, 7])
@pytest.mark.parametrize("batch_norm", [False, True])
def test_every_gradient_at_the_same_view(count: int, batch_norm: bool) -> None:
    on = task(batch_norm=batch_norm)
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=20)
    draw = torch.Generator().manual_seed(2)
    size = on.layout.size
    views = torch.zeros(count, padded(size), dtype=torch.float64)
    views[:, :size] = on.start() + 0.3 * torch.randn(count, size, generator=draw).double()
    rows = np.array([3, 9, 0, 5, 12, 17, 6][:count])
    rule = tg.rules.sgd(lr=0.1)
    check_batchable(on, tg.OneGradient())
    pieces = Batched(Job.on_one_shard(schedule, on, rule), [CHUNK])(views, rows)
    grads = torch.cat([piece.grads for piece in pieces])
    losses = torch.cat([piece.losses for piece in pieces])
    for i, row in enumerate(rows.tolist()):
        turn = Turn(int(schedule.worker[row]), int(schedule.step[row]), row)
        one = on.gradient(views[i, :size], turn)
        assert (grads[i] - one.grad).abs().max() <= 1e-12 * one.grad.abs().max()
        assert float(losses[i]) == pytest.approx(float(one.loss), rel=1e-12)
        for many, single in zip(pieces[i // CHUNK].statistics, one.buffers, strict=True):
            torch.testing.assert_close(many[i % CHUNK], single, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", RULE_CASES)
def test_every_rule_in_a_closed_loop(name: str) -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=UPDATES)
    rule = RULE_CASES[name]
    same(run(schedule, rule, "fast"), run(schedule, rule, "exact"))


@pytest.mark.parametrize("rule", ["fasgd", "dana_ga"])
@pytest.mark.parametrize("name", POLICY_CASES)
def test_every_policy_in_a_closed_loop(name: str, rule: str) -> None:
    policy, cluster, shards = POLICY_CASES[name]
    schedule = tg.schedule(policy, cluster, updates=UPDATES, shards=shards, seed=3)
    measured = tg.Evaluation(37, measures=["gap"] if rule == "fasgd" else [])
    exact = run(schedule, RULE_CASES[rule], "exact", evaluation=measured)
    same(run(schedule, RULE_CASES[rule], "fast", evaluation=measured), exact)


@pytest.mark.stress
@pytest.mark.parametrize("rule", RULE_CASES)
@pytest.mark.parametrize("name", POLICY_CASES)
@pytest.mark.parametrize("chunk", [1, 3, 16])
def test_every_rule_under_every_policy(name: str, rule: str, chunk: int) -> None:
    policy, cluster, shards = POLICY_CASES[name]
    shards = 1 if rule.startswith("gap_") or rule == "muon" else shards
    schedule = tg.schedule(policy, cluster, updates=UPDATES, shards=shards, seed=4)
    exact = run(schedule, RULE_CASES[rule], "exact")
    same(run(schedule, RULE_CASES[rule], "fast", limits=tg.Limits(chunk)), exact)


def test_batch_norm_folds_in_order_of_application() -> None:
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=100)
    on, rule = task(batch_norm=True), RULE_CASES["gap_aware"]
    exact = run(schedule, rule, "exact", task=on, evaluation=50)
    assert exact.buffers
    same(run(schedule, rule, "fast", task=on, evaluation=50), exact)


def test_workers_that_leave_take_their_rows_with_them() -> None:
    cluster = tg.Gamma(workers=4, heterogeneous=True)
    schedule = tg.schedule(tg.Async(), cluster, updates=UPDATES, seed=5)
    # Worker 2 goes after half of the groups: its later gradients were never made.
    keep = ~((schedule.worker[schedule.group_rows] == 2) & (np.arange(UPDATES) >= UPDATES // 2))
    order = schedule.worker[schedule.group_rows][keep].tolist()
    left = tg.Schedule.from_order(order, num_workers=4)
    at = int(keep[: UPDATES // 2].sum())
    changed: dict[str, Any] = {
        "member_worker": np.array([2]),
        "member_joined": np.array([0]),
        "member_time_s": left.group_time_s[at : at + 1],
        "member_after": np.array([at]),
    }
    from dataclasses import replace

    gone = replace(left, **changed)
    rule = RULE_CASES["dana"]
    exact = run(gone, rule, "exact")
    assert not torch.equal(exact.params, run(left, rule, "exact").params)
    same(run(gone, rule, "fast"), exact)


@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync()], ids=repr)
def test_clipping_is_the_workers_doing_in_both(policy: Policy) -> None:
    """Each clips its own gradient, though a round's are computed at one view."""
    schedule = tg.schedule(policy, tg.Gamma(workers=4), updates=50)
    rule, work = RULE_CASES["fasgd"], tg.OneGradient(clip_norm=0.2)
    exact = run(schedule, rule, "exact", work=work)
    assert not torch.equal(exact.params, run(schedule, rule, "exact").params)
    same(run(schedule, rule, "fast", work=work), exact)


@pytest.mark.parametrize("kind", ["dropout", "function"])
def test_what_cannot_be_batched_goes_one_by_one_and_says_so(kind: str) -> None:
    lines: list[str] = []
    schedule = tg.schedule(tg.Async(), tg.Gamma(workers=4), updates=60)
    on: Any = task(dropout=True)
    if kind == "function":
        on = tg.FunctionTask(torch.ones(7, dtype=torch.float64), lambda view, worker, step: view)
    with pytest.raises(Unsuited):
        check_batchable(on, tg.OneGradient())
    exact = run(schedule, RULE_CASES["fasgd"], "exact", task=on)
    fast = run(schedule, RULE_CASES["fasgd"], "fast", task=on, say=lines.append)
    same(fast, exact)
    assert len(lines) == 2
    assert "one by one" in lines[0]
    assert lines[1] == "engine: fast"
