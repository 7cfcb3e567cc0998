"""Codecs among a plan's candidates: where a network makes the bytes of gradients matter."""

import math

import pytest

import tardigrad as tg
from tardigrad.clusters import Network
from tardigrad.experiment import Spec
from tardigrad.planning.goal import Target
from tardigrad.planning.measure import Setting
from tardigrad.planning.offers import CODED, MOST, WORTH_CODING, offer
from tardigrad.planning.race import race
from tardigrad.planning.recommended import recommended_run
from tardigrad.planning.trained import every_candidate, longest_s
from tardigrad.planning.trial import Training, WallBudget

PARAMETERS = 7850
SPEC = Spec.of(
    {
        "updates": 150,
        "task": {"name": "logistic_regression", "train_size": 200, "validation": 50},
        "rule": {"name": "sgd", "lr": 0.05, "momentum": 0.5},
        "cluster": {"name": "gamma", "workers": 4},
    }
)


def setting(transfer_s: float | None, shards: int = 1) -> Setting:
    """A gradient's bytes take so long, and a step one second."""
    network = None
    if transfer_s is not None:
        size = 4.0 * PARAMETERS
        network = Network(bandwidth_bytes_s=size / transfer_s, model_bytes=size)
    cluster = tg.Gamma(workers=4, mean_s=1.0, network=network)
    return Setting(cluster, shards=shards, gradients=2000)


def codecs(where: Setting) -> set[tg.Codec]:
    found = every_candidate(where, SPEC, 1, where.collect_times_s())
    assert len(found) <= MOST
    assert len({c.key for c in found}) == len(found)
    return {c.measured.codec for c in found} - {tg.Identity()}


def test_codecs_are_offered_where_bytes_take_a_tenth_of_a_step() -> None:
    assert setting(0.5).push_share == pytest.approx(0.5, rel=0.1)
    assert setting(0.5, shards=5).push_share == pytest.approx(0.1, rel=0.1)
    assert codecs(setting(1.2 * WORTH_CODING)) == set(CODED)
    assert codecs(setting(0.8 * WORTH_CODING)) == set()
    assert codecs(setting(None)) == set()
    slow = tg.Gamma(workers=4, mean_s=1.0, network=Network(latency_s=9.0))
    assert codecs(Setting(slow, gradients=2000)) == set()


def test_a_codec_wins_where_bytes_take_longest_and_is_recommended() -> None:
    where, target = setting(5.0), Target("loss", 0.45)
    measured = [where.measure(tg.Async(), codec=c) for c in (tg.Identity(), *CODED)]
    candidates = [c for c in offer(measured, SPEC.rule, 4) if c.rule["name"] == "sgd"]
    assert [c.label for c in candidates if c.factor == 1] == [
        "Async, sgd, lr 0.05",
        "Async, TopK(share=0.01), sgd, lr 0.05",
        "Async, Int8, sgd, lr 0.05",
    ]
    training = Training(SPEC, where.cluster, target, longest_s(where, SPEC), "exact")
    winner = race(training, candidates, 2, WallBudget(math.inf)).entrants[0]
    codec = winner.candidate.measured.codec
    assert codec in CODED
    data = {**SPEC.data(), "cluster": {"name": "gamma", "workers": 4, "mean_s": 1.0}}
    chosen = Spec.of(recommended_run(winner, target, where.cluster, data))
    assert chosen.make_link() == tg.Full(codec)


def test_a_trial_is_the_run_with_its_codec() -> None:
    where = setting(1.0)
    (candidate, *_) = offer([where.measure(tg.Sync(), codec=CODED[0])], SPEC.rule, 4)
    training = Training(SPEC, where.cluster, Target("loss", 1e-6), 60.0, "exact")
    trial = training.trial(candidate, 0)
    trial.train(math.inf, WallBudget(math.inf))
    last = trial.points[-1]
    run = tg.simulate(
        SPEC.make_task(),
        Spec.of({**SPEC.data(), "rule": candidate.rule}).make_rule(),
        tg.Sync(),
        where.cluster,
        last.updates,
        link=tg.Full(CODED[0]),
        evaluation=last.updates,
    )
    record = run.history.records[-1]
    assert last.value == pytest.approx(record["validation_loss"], rel=1e-5)
    assert last.bytes == pytest.approx(record["push_bytes"] + record["pull_bytes"], rel=0.1)
