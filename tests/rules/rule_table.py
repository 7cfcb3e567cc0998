"""All rules, with the options that change what they do, and one that a user might write."""

from dataclasses import replace
from typing import Any

from root_penalty import root_penalty
from tardigrad import Rule
from tardigrad.rules import (
    RULES,
    Adam,
    DelayAdaptive,
    DelayCompensation,
    Gap,
    RmsProp,
    ScheduleFree,
    Sgd,
    adagrad,
    adam,
    adam_ga,
    adam_sa,
    adamw,
    dana,
    dana_ga,
    dana_sa,
    delay_adaptive,
    delay_compensated,
    delayed_nesterov,
    exponential_penalty,
    fasgd,
    fedasync,
    gap_aware,
    muon,
    nadam,
    pipemare,
    rmsprop,
    schedule_free,
    sgd,
    staleness_aware,
    staleness_weighted,
    weights,
)

LR = 0.05
TABLE: dict[str, Rule] = {
    "sgd": sgd(LR),
    "sgd momentum": sgd(LR, momentum=0.6),
    "sgd negative momentum": sgd(LR, momentum=-0.3),
    "sgd nesterov": sgd(LR, momentum=0.6, nesterov=True),
    "sgd weight_decay": sgd(LR, weight_decay=0.01),
    "adam": adam(LR),
    "adam weight_decay": adam(LR, weight_decay=0.01),
    "adamw": adamw(LR),
    "adamw no_decay": adamw(LR, weight_decay=0.1, no_decay=("[at]*",)),
    "sgd rate_scale": replace(sgd(LR, momentum=0.6), rate_scale={"[at]*": 0.5}),
    "nadam": nadam(LR),
    "nadam decoupled": nadam(LR, (0.8, 0.99), weight_decay=0.01, decoupled=True),
    "rmsprop": rmsprop(0.01),
    "rmsprop momentum": rmsprop(0.005, alpha=0.9, momentum=0.6),
    "adagrad": adagrad(0.3),
    "staleness_aware": staleness_aware(0.2),
    "staleness_aware nesterov": staleness_aware(LR, momentum=0.6, nesterov=True),
    "staleness_aware gradient": staleness_aware(LR, momentum=0.6, on="gradient"),
    "staleness_aware max_one": staleness_aware(LR, staleness="max_one"),
    "exponential_penalty": exponential_penalty(LR, rate=0.2, momentum=0.6),
    "fasgd": fasgd(LR),
    "fasgd printed": fasgd(0.2, eps=0.5, estimator="printed"),
    "fasgd magnitude": fasgd(0.03, estimator="magnitude"),
    "delay_compensated": delay_compensated(LR),
    "delay_compensated momentum": delay_compensated(LR, momentum=0.6),
    "delay_compensated adaptive": delay_compensated(LR, adaptive=True),
    "delay_compensated server": delay_compensated(LR, adaptive=True, mean_square="server"),
    "delay_compensated within_group": delay_compensated(LR, within_group=True),
    "gap_aware": gap_aware(LR, momentum=0.6),
    "gap_aware heavy ball": gap_aware(LR, momentum=0.6, nesterov=False),
    "gap_aware momentum 0": gap_aware(LR, momentum=0.0, nesterov=False),
    "gap_aware tentative": gap_aware(LR, momentum=0.6, step="tentative"),
    "gap_aware layer": gap_aware(LR, momentum=0.6, per="layer"),
    "gap_aware global": gap_aware(LR, momentum=0.6, per="global"),
    "gap_aware tolerance": gap_aware(LR, momentum=0.6, tolerance=1.0),
    "gap_aware weight_decay": gap_aware(LR, momentum=0.6, weight_decay=0.01),
    "dana": dana(LR, momentum=0.6),
    "dana_sa": dana_sa(LR, momentum=0.6),
    "dana_ga": dana_ga(LR, momentum=0.6),
    "adam_sa": adam_sa(LR),
    "adam_ga": adam_ga(LR),
    "ema": Rule(LR, Sgd(), ema=0.9),
    "clip_norm": Rule(LR, Sgd(), clip_norm=0.5),
    "delay compensation, adam": Rule(LR, Adam(), DelayCompensation()),
    "gap, rmsprop": Rule(0.005, RmsProp(momentum=0.6), Gap()),
    "root_penalty": root_penalty(LR, momentum=0.6),
    "staleness_weighted": staleness_weighted(LR, momentum=0.6),
    "staleness_weighted hinge": staleness_weighted(LR, weights.hinge(2.0, 1.0), momentum=0.6),
    "staleness_weighted constant": staleness_weighted(LR, weights.constant()),
    "polynomial weights, adam": Rule(LR, Adam(), weights.polynomial(0.7)),
    "fedasync": fedasync(LR),
    "fedasync hinge": fedasync(0.2, weights.hinge(2.0, 1.0)),
    "delay_adaptive": delay_adaptive(LR, workers=2),
    "delay_adaptive threshold": delay_adaptive(LR, workers=9, threshold=1.0, momentum=0.6),
    "delay adaptive, adam": Rule(LR, Adam(), DelayAdaptive(1.0)),
    "pipemare": pipemare(LR, updates=20),
    "pipemare nesterov": pipemare(LR, updates=20, momentum=0.6, nesterov=True),
    "delayed_nesterov": delayed_nesterov(LR, every=3, momentum=0.6),
    "delayed_nesterov c": delayed_nesterov(LR, every=3, momentum=0.6, c=0.2),
    "schedule_free": schedule_free(0.2),
    "schedule-free, polynomial weights": Rule(0.2, ScheduleFree(0.8), weights.polynomial()),
    "muon": muon(LR, precision="full", weight_decay=0.0),
    "muon bfloat16": muon(LR, weight_decay=0.0),
    "muon decay": muon(LR, 0.8, False, precision="full", adam_lr=0.5, no_decay=("[bt]*",)),
}
ELEMENTWISE = [
    name
    for name in TABLE
    if name not in ("gap_aware layer", "gap_aware global") and "muon" not in name
]
NEEDED: dict[str, dict[str, Any]] = {
    "exponential_penalty": {"rate": 0.1},
    "delay_adaptive": {"workers": 2},
    "pipemare": {"updates": 20},
    "delayed_nesterov": {"every": 3},
}
"""What rules must be told beside their rate."""


def made(name: str, lr: Any, **options: Any) -> Rule:
    """The rule of that name, with as little as it takes."""
    return RULES[name](lr, **NEEDED.get(name, {}), **options)


def missing() -> set[str]:
    """Rules of the catalogue that the table forgot."""
    return set(RULES) - {name.split()[0] for name in TABLE}
