"""A trial is the run that `tg.simulate` makes; targets, candidates and what they are made of."""

import math
from itertools import pairwise

import pytest

import tardigrad as tg
from tardigrad.clusters import Gamma
from tardigrad.experiment import Spec
from tardigrad.planning.advice import advise
from tardigrad.planning.entrants import Entrant
from tardigrad.planning.goal import Target, seconds_of
from tardigrad.planning.measure import Setting
from tardigrad.planning.offers import MOST, offer, scaled
from tardigrad.planning.recommended import recommended_run
from tardigrad.planning.trained import every_candidate, longest_s
from tardigrad.planning.trial import Training, WallBudget
from tardigrad.policies import Async, Backup, SoftSync, Sync

SPEC = Spec.of(
    {
        "updates": 120,
        "seed": 5,
        "shards": 2,
        "task": {"name": "logistic_regression", "train_size": 200, "validation": 50},
        "rule": {"name": "sgd", "lr": 0.05, "momentum": 0.5},
        "cluster": {"name": "gamma", "workers": 6},
    }
)


@pytest.mark.parametrize(("number", "seed"), [(0, 0), (7, 2), (20, 0), (-3, 1), (-1, 2)])
def test_a_trial_is_the_run_that_it_stands_for(number: int, seed: int) -> None:
    setting = Setting(Gamma(workers=6), shards=2, gradients=600, seed=5)
    control = advise(setting.cluster, gradients=600, shards=2, seed=5)
    candidate = every_candidate(setting, SPEC, 1, control.times_s)[number]
    training = Training(SPEC, setting.cluster, Target("loss", 1e-6), longest_s(setting, SPEC))
    trial = training.trial(candidate, seed)
    trial.train(math.inf, WallBudget(math.inf))
    assert trial.reached is None
    assert len(trial.points) == 97
    first = next(point for point in trial.points if point.updates)
    for point in (first, trial.points[-1]):
        run = tg.simulate(
            Spec.of({**SPEC.data(), "seed": 5 + seed}).make_task(),
            Spec.of({**SPEC.data(), "rule": candidate.rule}).make_rule(),
            candidate.policy,
            setting.cluster,
            point.updates,
            5 + seed,
            shards=2,
            evaluation=point.updates,
            work=Spec.of({**SPEC.data(), "work": candidate.work or "gradient"}).make_work(),
        )
        last = run.history.records[-1]
        assert point.value == pytest.approx(last["validation_loss"], rel=1e-5)
        assert last["time_s"] <= point.time_s
        assert point.bytes == pytest.approx(last["push_bytes"] + last["pull_bytes"], rel=0.1)
        assert point.delay == pytest.approx(run.schedule.delays.mean(), abs=0.15)


def test_the_time_is_taken_between_evaluations() -> None:
    setting = Setting(Gamma(workers=6), shards=2, gradients=600, seed=5)
    candidate = every_candidate(setting, SPEC, 1, setting.collect_times_s())[0]
    free = Training(SPEC, setting.cluster, Target("loss", 1e-6), longest_s(setting, SPEC))
    whole = free.trial(candidate, 0)
    whole.train(math.inf, WallBudget(math.inf))
    lows = [
        (before, after)
        for i, (before, after) in enumerate(pairwise(whole.points))
        if after.value < min(point.value for point in whole.points[: i + 1]) < before.value + 1e-12
    ]
    before, after = lows[len(lows) // 2]
    target = Target("loss", before.value - 0.25 * (before.value - after.value))
    trial = Training(SPEC, setting.cluster, target, free.horizon_s).trial(candidate, 0)
    trial.train(math.inf, WallBudget(math.inf))
    reached = trial.reached
    assert reached is not None
    assert trial.points[-1] == after
    expected_s = before.time_s + 0.25 * (after.time_s - before.time_s)
    assert reached.time_s == pytest.approx(expected_s, rel=1e-6)


def test_a_target_that_is_near_is_timed_as_finely_in_a_long_run() -> None:
    setting = Setting(Gamma(workers=6), shards=2, gradients=600, seed=5)
    candidate = every_candidate(setting, SPEC, 1, setting.collect_times_s())[1]
    found = []
    for longer in (1, 100):
        horizon_s = longer * longest_s(setting, SPEC)
        trial = Training(SPEC, setting.cluster, Target("loss", 0.6), horizon_s).trial(candidate, 0)
        trial.train(math.inf, WallBudget(math.inf))
        assert trial.reached is not None
        found.append(trial.reached.time_s)
    assert found[1] == pytest.approx(found[0], rel=0.1)


def test_candidates_are_policies_rules_and_rates() -> None:
    setting = Setting(Gamma(workers=16), gradients=2000)
    policies = (Sync(), Backup(2), SoftSync(groups=4), Async())
    found = offer([setting.measure(p) for p in policies], {"name": "sgd", "lr": 0.1}, 16)
    assert len(found) <= MOST
    assert len({c.key for c in found}) == len(found)
    synchronous = [c.rule["lr"] for c in found if c.policy == Sync()]
    assert synchronous == [0.1, 0.4, 1.6]
    free = {c.rule["name"]: c.rule for c in found if c.policy == Async()}
    assert set(free) == {"sgd", "gap_aware", "staleness_aware"}
    assert (free["gap_aware"]["momentum"], free["gap_aware"]["nesterov"]) == (0.0, False)
    rates = sorted(c.rule["lr"] for c in found if c.label.startswith("Async, sgd"))
    assert rates[0] < 0.1 == rates[1] < rates[2]


def test_local_steps_are_offered_trained_and_recommended() -> None:
    """The spec's rule becomes the workers' own; the time of a row is that of its steps."""
    setting = Setting(Gamma(workers=4), gradients=400)
    plain, local = setting.measure(Sync()), setting.measure(Sync(), 8)
    assert local.summary.update_s == pytest.approx(8 * plain.summary.update_s, rel=0.1)
    found = offer([local], {"name": "sgd", "lr": 0.1, "momentum": 0.9}, 4)
    assert [c.work and c.work["inner"]["lr"] for c in found] == [0.1, 0.2]
    assert found[0].label == "Sync, 8 local steps, sgd, lr 0.1"
    assert found[0].rule == {"name": "sgd", "lr": 1.0}
    assert offer([local], {"name": "gap_aware", "lr": 0.1}, 4) == []
    horizon_s = longest_s(setting, SPEC)
    trial = Training(SPEC, setting.cluster, Target("loss", 0.6), horizon_s).trial(found[0], 0)
    trial.train(math.inf, WallBudget(math.inf))
    assert trial.reached is not None
    entrant = Entrant(found[0], [trial])
    data = {**SPEC.data(), "cluster": {"name": "gamma", "workers": 4}}
    chosen = recommended_run(entrant, Target("loss", 0.6), setting.cluster, data)
    assert chosen["work"] == {"name": "local_steps", "steps": 8, "inner": found[0].tuned}
    assert Spec.of(chosen).make_work().batches == 8


def test_what_only_a_servers_rule_takes_stays_there() -> None:
    setting = Setting(Gamma(workers=4), gradients=400)
    local, late = setting.measure(Sync(), 8), setting.measure(Async())
    averaged = offer([local], {"name": "sgd", "lr": 0.1, "ema": 0.9}, 4)[0]
    assert averaged.work is not None
    assert averaged.work["inner"] == {"name": "sgd", "lr": 0.1}
    assert averaged.rule == {"name": "sgd", "lr": 1.0, "ema": 0.9}
    scale = {"weight": 2.0}
    assert offer([local], {"name": "sgd", "lr": 0.1, "rate_scale": scale}, 4) == []
    scaled_tensors = offer([late], {"name": "sgd", "lr": 0.1, "rate_scale": scale}, 4)
    assert {str(c.rule["name"]) for c in scaled_tensors} > {"sgd"}
    assert all(candidate.rule["rate_scale"] == scale for candidate in scaled_tensors)


def test_rates_that_change_are_scaled_whole() -> None:
    rate = {"rate": "warm_up", "over": 2, "after": {"rate": "cosine", "lr": 0.1, "over": 9}}
    found = scaled({"name": "sgd", "lr": rate}, 2.0)
    assert found["lr"] == {**rate, "after": {"rate": "cosine", "lr": 0.2, "over": 9}}
    assert scaled({"name": "mine.py:mine"}, 2.0) == {"name": "mine.py:mine"}


def test_more_than_forty_lose_their_slowest_policies() -> None:
    setting = Setting(Gamma(workers=16, heterogeneous=True), gradients=2000)
    policies = [SoftSync(groups=g) for g in range(2, 9)]
    found = offer([setting.measure(p) for p in policies], {"name": "adam", "lr": 0.1}, 16)
    assert 20 < len(found) <= MOST
    assert {c.rule["name"] for c in found} == {"adam", "adam_ga", "adam_sa"}
    speeds = {c.measured.summary.gradients_per_s for c in found}
    left = [setting.measure(p).summary.gradients_per_s for p in policies]
    assert speeds == set(sorted(set(left))[-len(speeds) :])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5", "target is loss=… or accuracy=…, such as loss=0.5, got '0.5'"),
        ("f1=0.5", "target is loss=… or accuracy=…"),
        ("loss=low", "target loss=low"),
        ("accuracy=95", "accuracy is a share"),
    ],
)
def test_targets_that_mean_nothing_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Target.of(text)


def test_a_target_must_be_measured_and_ahead() -> None:
    task = SPEC.make_task()
    with pytest.raises(ValueError, match="loss=5 is reached before training, at loss = 0"):
        Target.of("loss=5").name(task, SPEC.evaluation)
    bare = tg.FunctionTask(task.start(), lambda view, worker, step: view)
    with pytest.raises(ValueError, match=r"accuracy=0\.9 is never measured"):
        Target.of("accuracy=0.9").name(bare, SPEC.evaluation)
    quadratic = Spec.of({**SPEC.data(), "task": "quadratic"})
    with pytest.raises(ValueError, match="is never measured: an evaluation of this task gives"):
        Target.of("accuracy=0.9").name(quadratic.make_task(), quadratic.evaluation)
    assert Target.of("accuracy=0.99").name(task, SPEC.evaluation) == "validation_accuracy"


def test_times_are_read_with_their_units() -> None:
    assert [seconds_of("x", t) for t in ("90s", "5m", "1.5h", "2d", 7, "0.5")] == [
        *(90, 300, 5400, 172_800, 7, 0.5)
    ]
    for wrong in ("soon", "0", "-5m", "5 weeks", "1.2.3s"):
        with pytest.raises(ValueError, match="budget is a time above 0, such as 90s, 5m or 2h"):
            seconds_of("budget", wrong)
