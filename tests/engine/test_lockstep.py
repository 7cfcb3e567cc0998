"""Links that read tensors: against a loop written from the paper, and against their own replay."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.clusters import Absence, Cluster, Network
from tardigrad.core.keys import key, uniform
from tardigrad.core.layout import Layout
from tardigrad.engine.lockstep import Lockstep
from tardigrad.links.link import Link, OnDrop
from tardigrad.policies import Policy
from tardigrad.scheduling import traffic
from tardigrad.tasks import Turn, quadratic

WORKERS = 4
TASK = quadratic(30, noise=0.3, dtype="float64")
RULE = tg.rules.fasgd(lr=0.02)


def layered() -> tg.FunctionTask:
    """Three tensors of different size; the gradients of the first deviate most."""
    layout = Layout(("a", "b", "c"), ((4,), (5, 4), (6,)))
    noise = torch.cat([torch.full((4,), 2.0), torch.full((20,), 0.1), torch.full((6,), 0.5)])

    def grad(view: torch.Tensor, worker: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        u = torch.as_tensor(uniform(key(0, "noise", worker), step * 30 + np.arange(30))) - 0.5
        return view.square().sum() / 2, view + noise.double() * u

    return tg.FunctionTask(torch.ones(30, dtype=torch.float64), grad, layout)


def paper(link: tg.BandwidthAware, updates: int, seed: int) -> tuple[torch.Tensor, list[int]]:
    """B-FASGD as a plain loop over arrivals: one server, one lock, no versions but numbers."""
    order = tg.Dispatcher(workers=WORKERS).dispatch(seed)
    theta = TASK.start()
    n, b, v = torch.zeros_like(theta), torch.zeros_like(theta), torch.ones_like(theta)
    view, read = [theta] * WORKERS, [0] * WORKERS
    heard, step = [1.0] * WORKERS, [0] * WORKERS
    cache: dict[int, tuple[torch.Tensor, int]] = {}
    unsent: list[list[torch.Tensor]] = [[] for _ in range(WORKERS)]
    copies, version, event = [0, 0, 0, 0], 0, 0
    drawn = [[0, 0] for _ in range(WORKERS)]

    def passes(worker: int, way: int, c: float) -> bool:
        r = uniform(key(seed, ("link push", "link pull")[way], worker, 0), drawn[worker][way])
        drawn[worker][way] += 1
        return bool(r < 1 / (1 + c / (heard[worker] + link.eps)))

    while version < updates:
        worker = order.next(event, np.arange(WORKERS))
        event += 1
        grad = TASK.gradient(view[worker], Turn(worker, step[worker], event - 1)).grad
        step[worker] += 1
        copies[0] += 1
        apply = True
        if passes(worker, 0, link.c_push) or worker not in cache:
            copies[1] += 1
            mean = sum([*unsent[worker][1:], grad], unsent[worker][0]) if unsent[worker] else grad
            cache[worker] = mean / (len(unsent[worker]) + 1), read[worker]
            unsent[worker] = []
        elif link.on_drop == "average":
            unsent[worker].append(grad)
            apply = False
        if apply:
            g, old = cache[worker]
            n, b = 0.9 * n + 0.1 * g * g, 0.9 * b + 0.1 * g
            v = 0.9 * v + 0.1 * torch.sqrt(torch.clamp(n - b * b, min=0) + 1e-4)
            theta = theta - 0.02 * g / (v * (version - old + 1))
            version += 1
        copies[2] += 1
        if passes(worker, 1, link.c_pull):
            copies[3] += 1
            view[worker], read[worker] = theta, version
        heard[worker] = float(v.mean())
    return theta, copies


@pytest.mark.parametrize(
    "link",
    [
        tg.BandwidthAware(c_pull=2.0),
        tg.BandwidthAware(c_push=0.3),
        tg.BandwidthAware(c_push=0.3, c_pull=0.5),
        tg.BandwidthAware(c_push=0.3, c_pull=0.5, on_drop="average"),
    ],
)
def test_b_fasgd_is_the_papers_loop(link: tg.BandwidthAware) -> None:
    run = tg.simulate(TASK, RULE, cluster=tg.Dispatcher(WORKERS), updates=300, seed=5, link=link)
    theta, copies = paper(link, 300, seed=5)
    assert run.traffic is not None
    push, pull = run.traffic.push, run.traffic.pull
    assert [push.potential, push.sent, pull.potential, pull.sent] == copies
    assert torch.allclose(run.params, theta, rtol=1e-9, atol=1e-12)
    assert push.sent < push.potential or link.c_push == 0
    assert pull.sent < pull.potential or link.c_pull == 0


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("policy", [tg.Async(), tg.Sync(), tg.Async(wait=False)])
def test_c_of_zero_is_full(policy: Policy, shards: int) -> None:
    parts: dict[str, Any] = {
        "policy": policy,
        "cluster": tg.Gamma(workers=3),
        "updates": 60,
        "shards": shards,
    }
    full = tg.simulate(TASK, RULE, **parts)
    zero = tg.simulate(TASK, RULE, link=tg.BandwidthAware(), **parts)
    assert torch.equal(full.params, zero.params)
    assert full.history.loss == zero.history.loss
    assert full.traffic == zero.traffic


LINKS = [
    tg.BandwidthAware(c_push=0.5, c_pull=1.0),
    tg.BandwidthAware(c_push=0.5, c_pull=1.0, on_drop="average"),
    tg.Budget(60.0, direction="both"),
    tg.Budget(60.0, direction="push", on_drop="reapply"),
]


def _records(run: tg.Run) -> list[dict[str, float]]:
    return [{k: v for k, v in r.items() if k != "wall_s"} for r in run.history.records]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(
    "cluster",
    [
        tg.Dispatcher(workers=4),
        tg.Gamma(workers=4, mean_s=1.0, network=Network(latency_s=0.3, jitter=1.0)),
        tg.Gamma(workers=4, mean_s=1.0, absences=(Absence(2, 5.0, 9.0), Absence(3, 12.0))),
    ],
)
def test_the_finished_schedule_replays_to_the_same_bits(link: Link, cluster: Cluster) -> None:
    measured = tg.Evaluation(every=20, measures=("gap", "b_staleness"))
    options: dict[str, Any] = {"evaluation": measured, "shard_by": "tensor"}
    task = layered()
    run = tg.simulate(task, RULE, cluster=cluster, updates=80, shards=3, link=link, **options)
    again = tg.execute(run.schedule, task, RULE, **options)
    assert torch.equal(run.params, again.params)
    assert _records(run) == _records(again)
    assert run.history.gap == again.history.gap
    assert run.history.b_staleness == again.history.b_staleness
    assert run.traffic == again.traffic
    assert run.schedule.wire_sent.mean() < 1


@pytest.mark.parametrize(
    ("policy", "on_drop"),
    [
        (tg.Sync(), "reapply"),
        (tg.Backup(1), "reapply"),
        (tg.SoftSync(2, wait=False), "reapply"),
        (tg.Partial(push=3, pull=0.5), "reapply"),
        (tg.BoundedDelay(6), "reapply"),
        (tg.BoundedDelay(6), "average"),
        (tg.StaleSynchronous(2), "average"),
        (tg.PartialPull(tg.Async(), 0.5), "average"),
        (tg.RampUp(tg.Async(), 20), "average"),
    ],
)
def test_links_go_with_other_policies(policy: Policy, on_drop: OnDrop) -> None:
    link = tg.BandwidthAware(c_push=0.5, c_pull=0.5, on_drop=on_drop)
    run = tg.simulate(TASK, RULE, policy, tg.Gamma(workers=4), 60, shards=2, link=link)
    assert torch.equal(run.params, tg.execute(run.schedule, TASK, RULE).params)
    assert run.schedule.updates == 60
    assert run.traffic is not None
    assert run.traffic.push.share < 1
    assert run.traffic.pull.share < 1


class _Stop(Exception):
    pass


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("network", [None, Network(latency_s=0.4, jitter=1.0)])
def test_a_killed_run_goes_on_to_the_same_bits(
    link: Link, network: tg.Network | None, tmp_path: Path
) -> None:
    task = layered()
    parts: dict[str, Any] = {
        "cluster": tg.Gamma(workers=4, mean_s=1.0, network=network),
        "updates": 60,
        "shards": "tensor",
        "link": link,
        "evaluation": 10,
    }
    whole = tg.simulate(task, RULE, **parts)

    def kill(tick: tg.engine.Tick) -> None:
        if tick.updates == 37:
            raise _Stop

    saving = tg.Checkpoints(tmp_path, every=10)
    with pytest.raises(_Stop):
        tg.simulate(task, RULE, watch=kill, checkpoints=saving, **parts)
    run = tg.simulate(task, RULE, checkpoints=replace(saving, resume=True), **parts)
    assert torch.equal(run.params, whole.params)
    assert run.schedule == whole.schedule
    assert run.traffic == whole.traffic
    assert _records(run) == _records(whole)


def test_only_what_may_be_asked_for_is_kept() -> None:
    """Per worker and shard at most the gradient in the making and the one sent last."""
    task, link = layered(), tg.BandwidthAware(c_push=1.0, c_pull=1.0)
    made: list[Lockstep] = []
    most = 0

    class Watched(Lockstep):
        def advance(self) -> None:
            nonlocal most
            super().advance()
            most = max(most, len(self._holders))
            made[:] = [self]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["tardigrad.engine.execute"], "Lockstep", Watched)
        tg.simulate(task, RULE, cluster=tg.Gamma(workers=4), updates=200, shards=3, link=link)
    assert most <= 4 * (1 + 3)
    assert not made[0].in_flight


RESTLESS = {
    "before its turn": (tg.RampUp(tg.Async(), 60), (Absence(3, 0.5, 4.0), Absence(2, 0.7))),
    "twice before its pull": (tg.Async(), (Absence(1, 0.5, 0.6), Absence(1, 0.7, 0.8))),
    "back before its push": (tg.Async(wait=False), (Absence(1, 2.0, 2.1), Absence(0, 3.0, 3.2))),
    "in a round": (tg.Sync(), (Absence(1, 2.0, 2.1), Absence(1, 2.3, 2.35), Absence(2, 3.0, 9.0))),
    "in a group": (tg.Partial(push=2, pull=0.5), (Absence(1, 2.0, 2.1), Absence(1, 2.2, 2.4))),
}


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("case", RESTLESS)
def test_workers_may_leave_whenever_they_like(case: str, shards: int, link: Link) -> None:
    """Also before they have ever started, and again before anything has reached them."""
    policy, absences = RESTLESS[case]
    if link.on_drop == "average" and not policy.asynchronous:
        pytest.skip("refused: it waits for every gradient of a round")
    network = Network(latency_s=0.8, jitter=0.5)
    cluster = tg.Gamma(workers=4, mean_s=1.0, network=network, absences=absences)
    made: list[Lockstep] = []

    class Watched(Lockstep):
        def advance(self) -> None:
            made[:] = [self]
            super().advance()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["tardigrad.engine.execute"], "Lockstep", Watched)
        run = tg.simulate(layered(), RULE, policy, cluster, 80, shards=shards, link=link)
    assert run.schedule.updates == 80
    assert torch.equal(run.params, tg.execute(run.schedule, layered(), RULE).params)
    # Nothing is kept for messages that nobody takes: what flies at the end has been sent of late.
    assert min((version for _, version in made[0].in_flight), default=80) > 40


def test_per_tensor_links_send_what_deviates_more_often() -> None:
    parts: dict[str, Any] = {
        "cluster": tg.Dispatcher(workers=4),
        "updates": 400,
        "shards": "tensor",
    }
    task, sizes = layered(), np.array([4, 20, 6]) * 8
    run = tg.simulate(task, RULE, link=tg.BandwidthAware(c_pull=0.5), **parts)
    pulls = run.schedule.wire_pull == 1
    often = [run.schedule.wire_sent[pulls & (run.schedule.wire_shard == s)].mean() for s in (0, 1)]
    assert often[0] > 1.5 * often[1]
    budget = tg.simulate(task, RULE, link=tg.Budget(60.0), **parts)
    assert budget.traffic is not None
    assert budget.traffic.pull.sent_bytes / 400 == pytest.approx(60, abs=4 * sizes.sum() / 400)
    assert budget.traffic.push.share == 1


def test_merged_gradients_are_averaged_and_counted() -> None:
    """Every second push: θ moves by the mean of two gradients, at the newer one's view."""

    def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        return torch.tensor([10.0**step])

    task = tg.FunctionTask(torch.zeros(1), grad)
    cluster = tg.Dispatcher(workers=1)
    run = tg.simulate(task, tg.rules.sgd(1.0), cluster=cluster, updates=3, link=tg.Every(push=2))
    assert run.params.item() == -(1 + (10 + 100) / 2 + (1000 + 10000) / 2)


def test_history_counts_bytes_both_ways() -> None:
    run = tg.simulate(
        TASK,
        RULE,
        cluster=tg.Dispatcher(workers=2),
        updates=40,
        link=tg.BandwidthAware(c_pull=1.0),
        evaluation=10,
    )
    for record in run.history.records:
        done = int(record["update"])
        counted = traffic(run.schedule, [240], done)
        assert record["push_bytes"] == record["push_bytes_potential"] == 240 * done
        assert record["pull_bytes"] == counted.pull.sent_bytes


def test_a_rule_without_a_deviation_is_refused() -> None:
    with pytest.raises(ValueError, match="deviation"):
        tg.simulate(
            TASK,
            tg.rules.sgd(0.1),
            cluster=tg.Dispatcher(workers=2),
            updates=3,
            link=tg.BandwidthAware(c_pull=1.0),
        )


def test_b_staleness_is_the_change_of_the_gradient() -> None:
    """On a quadratic without noise g(view) − g(θ) = Λ (view − θ), and nothing with one worker."""
    task = quadratic(20, condition=1.0, dtype="float64")
    options: dict[str, Any] = {
        "updates": 50,
        "evaluation": tg.Evaluation(measures=("gap", "b_staleness")),
    }
    run = tg.simulate(task, tg.rules.sgd(0.05), cluster=tg.Gamma(workers=5), **options)
    assert len(run.history.b_staleness) == len(run.schedule.delays)
    gaps = np.array(run.history.gap) * np.sqrt(20)
    assert np.allclose(run.history.b_staleness, gaps, rtol=1e-12)
    assert (gaps[run.schedule.delays > 0] > 0).all()
    alone = tg.simulate(task, tg.rules.sgd(0.05), cluster=tg.Gamma(workers=1), **options)
    assert set(alone.history.b_staleness) == {0.0}
