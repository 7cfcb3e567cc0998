"""DANA where workers leave and where updates are of groups, in every executor."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.clusters import Absence, Constant, Network
from tardigrad.core.layout import Layout
from tardigrad.engine import Arrived, Shard
from tardigrad.engine.checkpoint import load_checkpoint, save_checkpoint
from tardigrad.rules import Dana, Fasgd
from tests.rules import references as ref
from tests.rules.reference_server import Now, Push

LR, MOMENTUM = 0.05, 0.8
FAMILY = {
    name: tg.rules.RULES[name](LR, momentum=MOMENTUM) for name in ("dana", "dana_sa", "dana_ga")
}
START = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
CURVATURE = torch.tensor([1.0, 0.6, 0.4], dtype=torch.float64)
ENGINES = ["exact", "fast"]


def bowl() -> tg.FunctionTask:
    """Noiseless: its minimum is 0, and every worker's gradient at one view is the same."""
    return tg.FunctionTask(START, lambda view, worker, step: CURVATURE * view)


LATE = Constant(
    workers=3,
    step_s=1.0,
    network=Network(latency_s=0.4),
    # Their pushes are on the way when they go; worker 1 comes again, worker 2 does not.
    absences=(Absence(1, 10.3, 20.0), Absence(2, 15.6)),
)


def late(updates: int, policy: Any = None, **options: Any) -> tg.Schedule:
    made = tg.schedule(policy or tg.Async(), LATE, updates, **options)
    applied = made.group_rows.tolist()
    gone = {1: made.member_after[0], 2: made.member_after[1]}
    late = [
        worker
        for worker, after in gone.items()
        for row in applied[made.group_start[after] :]
        if made.worker[row] == worker and made.start_s[row] < 20
    ]
    assert set(late) == {1, 2}, "nobody's gradient came after its worker had left"
    return made


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("policy", "shards"), [(tg.Async(), 1), (tg.SoftSync(groups=1, wait=False), 2)]
)
@pytest.mark.parametrize("name", FAMILY)
def test_a_gradient_after_its_worker_left_leaves_no_momentum(
    name: str, policy: Any, shards: int, engine: Any
) -> None:
    """A v_i that stays would keep what is sent, and so the end, away from the minimum."""
    run = tg.execute(late(1500, policy, shards=shards), bowl(), FAMILY[name], engine)
    assert run.params.abs().max() < 1e-12


@pytest.mark.parametrize("name", FAMILY)
def test_a_late_gradient_number_by_number(name: str) -> None:
    """Worker 1 leaves; a gradient of it comes alone, then one in a group, then it is back."""
    kind = {"dana": "none", "dana_sa": "staleness", "dana_ga": "gap"}[name]
    twin = ref.Dana(kind, MOMENTUM)
    twin.start(START.tolist())
    shard = Shard(FAMILY[name], START, Layout.flat(3))
    draw = torch.Generator().manual_seed(0)

    def update(*workers: int, gone: bool = False) -> None:
        grads = [torch.randn(3, generator=draw, dtype=torch.float64) for _ in workers]
        view = START + 0.1 * torch.randn(3, generator=draw, dtype=torch.float64)
        now = Now(LR, LR, shard.version + 1)
        shard.apply([Arrived(w, g, view, 2) for w, g in zip(workers, grads, strict=True)])
        twin.update(
            [Push(w, g.tolist(), view.tolist(), 2) for w, g in zip(workers, grads, strict=True)],
            now,
        )
        if gone:
            twin.leave(1)
        theta = torch.tensor(twin.theta, dtype=torch.float64)
        assert torch.allclose(shard.theta, theta, rtol=0, atol=1e-12)
        sent = torch.tensor(twin.sent(now), dtype=torch.float64)
        assert torch.allclose(shard.sent, sent, rtol=0, atol=1e-12)

    for worker in (0, 1, 2, 1):
        update(worker)
    shard.leave(1)
    twin.leave(1)
    update(1, gone=True)
    update(0, 1, 2, gone=True)
    update(0)
    assert sorted(shard.owns) == [0, 2]
    shard.join(1)
    update(1)
    update(0, 1)
    assert sorted(shard.owns) == [0, 1, 2]


def one_worker(rule: tg.Rule, updates: int) -> Tensor:
    alone = tg.Schedule.from_order([0] * updates, 1)
    return tg.execute(alone, bowl(), rule, engine="exact").params


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize(
    "policy",
    [tg.Sync(), tg.SoftSync(groups=1), tg.Backup(backups=1), tg.Deadline(timeout_s=9.0)],
    ids=repr,
)
def test_equal_gradients_in_a_group_are_one_worker(
    policy: Any, name: str, shards: int, engine: Any
) -> None:
    """With equal step times the same four of Backup's five come first."""
    rule = FAMILY[name]
    made = tg.schedule(policy, Constant(workers=5), 40, shards=shards)
    groups = {len(made.group(g)) for g in range(made.groups)}
    assert groups == ({4} if isinstance(policy, tg.Backup) else {5})
    run = tg.execute(made, bowl(), rule, engine)
    assert (run.params - one_worker(rule, 40)).abs().max() <= 1e-12
    assert (run.params - START).abs().max() > 0.1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FAMILY)
def test_a_policys_scale_is_that_of_the_look_ahead(name: str, engine: Any) -> None:
    """Partial's group of 4 at 4 times the rate is one worker at 4 times the rate."""
    make = tg.rules.RULES[name]
    made = tg.schedule(tg.Partial(), Constant(workers=4), 40)
    assert set(made.group_scale.tolist()) == {4.0}
    run = tg.execute(made, bowl(), make(LR / 4, momentum=MOMENTUM), engine)
    assert (run.params - one_worker(FAMILY[name], 40)).abs().max() <= 1e-12


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FAMILY)
def test_groups_of_equals_among_others_are_one_worker_each(name: str, engine: Any) -> None:
    """Two pairs that take turns, at their own ages, are two asynchronous workers."""
    pairs = tg.Schedule.from_order([0, 1, 2, 3] * 30, 4, tg.SoftSync(groups=2))
    two = tg.Schedule.from_order([0, 1] * 30, 2)
    assert pairs.delays.tolist() == [d for d in two.delays.tolist() for _ in range(2)]
    run = tg.execute(pairs, bowl(), FAMILY[name], engine)
    alone = tg.execute(two, bowl(), FAMILY[name], engine="exact")
    assert (run.params - alone.params).abs().max() <= 1e-12


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", FAMILY)
def test_sync_of_many_workers_converges(name: str, engine: Any) -> None:
    rule = tg.rules.RULES[name](0.1)
    made = tg.schedule(tg.Sync(), tg.Gamma(workers=32), 700)
    assert tg.execute(made, bowl(), rule, engine).params.abs().max() < 1e-12


def test_groups_one_after_another_look_ahead_as_far_as_they_move() -> None:
    """within_group: at η/M each, so equal gradients of M workers move θ by η times their v."""
    rule = tg.Rule(LR, Dana(MOMENTUM), within_group=True)
    made = tg.Schedule.from_order([0, 1, 2] * 40, 3, tg.Sync())
    run = tg.execute(made, bowl(), rule, engine="exact")
    assert (run.params - one_worker(FAMILY["dana"], 40)).abs().max() <= 1e-12


@pytest.mark.parametrize("name", FAMILY)
@pytest.mark.parametrize(
    "policy", [tg.Async(), tg.Sync(), tg.SoftSync(groups=2, wait=False)], ids=repr
)
@pytest.mark.parametrize("engine", ENGINES)
def test_resuming_while_workers_are_away_changes_no_bit(
    engine: Any, policy: Any, name: str, tmp_path: Path
) -> None:
    made = tg.schedule(policy, LATE, 40, shards=2)
    limits = tg.Limits(chunk=4)
    whole = tg.execute(made, bowl(), FAMILY[name], engine, limits=limits)

    class Killed(Exception):
        pass

    def kill(tick: Any) -> None:
        if tick.updates >= stop:
            raise Killed

    first = int(made.group_shard[: made.member_after[0]].tolist().count(0))
    for stop in (first, first + 1, first + 5):
        folder = tmp_path / str(stop)
        folder.mkdir()
        parts = made, bowl(), FAMILY[name], engine
        with pytest.raises(Killed):
            tg.execute(*parts, watch=kill, checkpoints=tg.Checkpoints(folder, 1), limits=limits)
        again = tg.execute(*parts, checkpoints=tg.Checkpoints(folder, 1, True), limits=limits)
        assert torch.equal(again.params, whole.params)
        assert again.history.loss == whole.history.loss


def test_a_link_that_reads_tensors_tells_the_rule_who_is_gone() -> None:
    """Made and executed together, and the finished schedule executed again: the same bits."""
    rule = tg.Rule(LR, Dana(MOMENTUM), Fasgd())
    run = tg.simulate(
        bowl(), rule, cluster=LATE, updates=100, link=tg.BandwidthAware(c_push=0.05, c_pull=0.05)
    )
    again = tg.execute(run.schedule, bowl(), rule, engine="exact")
    assert torch.equal(run.params, again.params)
    assert len(run.schedule.member_after) == 3


@pytest.mark.parametrize("engine", ENGINES)
def test_a_checkpoint_that_does_not_say_who_left_is_refused(engine: Any, tmp_path: Path) -> None:
    """As 0.1 made them; a rule without numbers per worker goes on from one."""
    made = tg.Schedule.from_order([0, 1, 2] * 10, 3, tg.Sync())
    for name, refused in (("dana", True), ("gap_aware", False)):
        folder = tmp_path / name
        folder.mkdir()
        rule = tg.rules.RULES[name](LR)
        saving = tg.Checkpoints(folder)
        whole = tg.execute(made, bowl(), rule, engine, checkpoints=saving)
        saving = tg.Checkpoints(folder, resume=True)
        tensors, facts = load_checkpoint(folder / "checkpoint.safetensors")
        for shard in facts["shards"]:
            del shard["left"]
        save_checkpoint(folder / "checkpoint.safetensors", tensors, facts)
        if refused:
            with pytest.raises(ValueError, match=r"made by tardigrad 0\.1.*new folder"):
                tg.execute(made, bowl(), rule, engine, checkpoints=saving)
        else:
            again = tg.execute(made, bowl(), rule, engine, checkpoints=saving)
            assert torch.equal(again.params, whole.params)
