"""All rules, with the options that change what they do, and one that a user might write."""

from dataclasses import replace

from root_penalty import root_penalty
from tardigrad import Rule
from tardigrad.rules import (
    RULES,
    Adam,
    DelayCompensation,
    Gap,
    RmsProp,
    Sgd,
    adagrad,
    adam,
    adam_ga,
    adam_sa,
    adamw,
    dana,
    dana_ga,
    dana_sa,
    delay_compensated,
    exponential_penalty,
    fasgd,
    gap_aware,
    nadam,
    rmsprop,
    sgd,
    staleness_aware,
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
}
ELEMENTWISE = [name for name in TABLE if name not in ("gap_aware layer", "gap_aware global")]


def missing() -> set[str]:
    """Rules of the catalogue that the table forgot."""
    return set(RULES) - {name.split()[0] for name in TABLE}
