"""Quorums with a measured grace, and groups with weights: recorded, replayed, a worker killed."""

from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad import rules
from tardigrad.policies import Policy
from tardigrad.runtime import ActorPool, fail_at, train
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

TASK = TASKS["logistic_regression"]()
RULE = rules.gap_aware(lr=0.02, step="tentative")
TIMES = tg.Gamma(workers=3, mean_s=0.01, heterogeneous=True)
UPDATES = 40


def survive(
    pool: ActorPool, folder: Path, policy: Policy, updates: int = UPDATES, cut_every: int = 15
) -> tg.Run:
    """With a worker that dies between its pushes: one shard has the gradient, the other has not."""
    said: list[str] = []
    run = train(
        TASK, RULE, policy, workers=3, shards=2, updates=updates,
        checkpoints=tg.Checkpoints(folder, cut_every),
        processes=tg.Processes(pool=pool, digest_every=10),
        scenario=tg.Scenario(impose=TIMES, faults=[fail_at(worker=1, step=5)]), say=said.append,
    )  # fmt: skip
    assert any(line.startswith("worker 1 died (") for line in said)
    assert_replays(run, TASK, RULE, updates)
    assert_nothing_lost_or_twice(folder, 2, updates)
    return run


@pytest.mark.parametrize(
    "policy",
    [
        pytest.param(tg.Quorum(2, grace_s=0.01), marks=pytest.mark.stress),
        tg.Quorum(2, grace_deviations=3.0, weights="samples"),
        pytest.param(tg.Quorum(2, grace_deviations=3.0, late="next"), marks=pytest.mark.stress),
    ],
    ids=str,
)
def test_a_quorum_with_grace_survives_and_replays(
    policy: tg.Quorum, pool: ActorPool, tmp_path: Path
) -> None:
    run = survive(pool, tmp_path, policy)
    assert run.schedule.updates == UPDATES
    if policy.late == "drop":
        assert run.schedule.delays.max() == 0


def test_malenia_survives_and_replays_its_weights(pool: ActorPool, tmp_path: Path) -> None:
    """An update takes about nine gradients, so that twenty are more than a hundred."""
    schedule = survive(pool, tmp_path, tg.Malenia(9), updates=20, cut_every=8).schedule
    assert schedule.weighted
    saved = tg.Schedule.load(next(tmp_path.glob("schedule*")))
    assert (saved.group_weights == schedule.group_weights).all()


def test_weights_with_dana_are_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Malenia lets some gradients .* Dana keeps numbers"):
        train(TASK, rules.dana(lr=0.02), tg.Malenia(4), workers=2, updates=5)
