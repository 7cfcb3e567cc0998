"""Random rules: every name of the catalogue with its options, compositions, and a user's own.

Rates are drawn freely. What a window kernel has as a literal comes from a few values, because each
new one is a compilation.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Any

from root_penalty import root_penalty
from tardigrad import rules
from tardigrad.rules import RULES, WEIGHTS, Rule, rates
from tardigrad.rules.rates import (
    ConstantRate,
    CosineRate,
    ExponentialRate,
    LearningRate,
    LinearRate,
    StepRate,
    Unit,
    WarmUpRate,
)
from tests.fuzz.fuzz_draws import Draws

COMPOSED = {
    "adam + delay compensation": "rules.Rule({lr}, rules.Adam(), rules.DelayCompensation(0.1))",
    "adam + gap": "rules.Rule({lr}, rules.Adam(), rules.Gap(step='tentative'))",
    "rmsprop + gap": "rules.Rule({lr}, rules.RmsProp(momentum=0.6), rules.Gap())",
    "adagrad + staleness": "rules.Rule({lr}, rules.AdaGrad(), rules.StalenessAware('step'))",
    "root_penalty": "root_penalty({lr}, momentum=0.6)",
}
NAMES = (*RULES, *COMPOSED)


@dataclass(frozen=True)
class RuleDraw:
    """What makes a rule, and what it is called."""

    name: str
    lr: float | LearningRate
    options: dict[str, Any] = field(default_factory=dict)
    common: dict[str, Any] = field(default_factory=dict)
    """What any rule may have: ema."""

    @property
    def per(self) -> str:
        """What it looks at together: a "parameter", a "layer", or all of them."""
        per: str = self.options.get("per", "layer" if self.name == "muon" else "parameter")
        return per

    def make(self) -> Rule:
        """What the text says, so that what is printed is what ran."""
        names = {"rules": rules, "rates": rates, "replace": replace}
        made: Rule = eval(self.text(), names | {"root_penalty": root_penalty})
        return made

    def text(self) -> str:
        """As Python."""
        rate = re.sub(r"\b([A-Z]\w+)\(", r"rates.\1(", repr(self.lr))
        options = re.sub(r"\b([A-Z]\w+)\(", r"rules.\1(", _arguments(self.options))
        form = COMPOSED.get(self.name, f"rules.{self.name}({{lr}}{{options}})")
        made = form.format(lr=rate, options=options)
        return f"replace({made}{_arguments(self.common)})" if self.common else made


def _arguments(named: dict[str, Any]) -> str:
    return "".join(f", {name}={value!r}" for name, value in named.items())


def draw_rule(seed: int, workers: int, epochs: bool, deviation: bool) -> RuleDraw:
    """`epochs`: whether the task has any. `deviation`: whether the link reads it."""
    draw = Draws(seed, "rule")
    name = "fasgd" if deviation else draw.choice(NAMES)
    options = _options(draw, name)
    if name in RULES and draw.chance(0.3):
        options["weight_decay"] = 1e-3
    common: dict[str, Any] = {}
    if draw.chance(0.2):
        common["ema"] = draw.choice([0.9, 0.4])
    small = name in ("dana", "dana_sa", "dana_ga", "fasgd", "rmsprop", "rmsprop + gap")
    lr = draw.log_uniform(0.001, 0.01) if small else draw.log_uniform(0.002, 0.05)
    if draw.chance(0.04) and name != "fedasync":  # whose rate is a share
        lr *= 1e40  # for most of them too much: they must tell that they diverged
    return RuleDraw(name, _rate(draw, lr, workers, epochs), options, common)


def _options(draw: Draws, name: str) -> dict[str, Any]:
    if name in COMPOSED or name == "adagrad":
        return {}
    if name in ("adam", "adamw", "nadam", "adam_sa", "adam_ga"):
        betas = {"betas": draw.choice([(0.9, 0.999), (0.5, 0.9)])}
        return betas | ({"decoupled": draw.chance(0.5)} if name == "nadam" else {})
    if name in ("fedasync", "staleness_weighted"):
        return {"weight": draw.choice(list(WEIGHTS.values()))()}
    if name == "schedule_free":
        return {"beta": draw.choice([0.9, 0.5])}
    if name == "muon":
        return {"nesterov": draw.chance(0.5), "precision": "full"}
    if name == "delayed_nesterov":
        return {"every": draw.choice([1, 3]), "momentum": 0.6, "c": draw.choice([0.0, 0.2])}
    if name == "rmsprop":
        return {"alpha": draw.choice([0.99, 0.9]), "momentum": draw.choice([0.0, 0.6])}
    if name == "fasgd":
        estimator = draw.choice(["std", "printed", "magnitude"])
        return {"estimator": estimator} | ({"eps": 0.5} if estimator == "printed" else {})
    momentum = draw.choice([0.0, 0.6, 0.9, -0.3])
    if name.startswith("dana"):
        return {"momentum": momentum}
    if name == "delay_compensated":
        return {
            "momentum": draw.choice([0.0, 0.6]),
            "adaptive": draw.chance(0.5),
            "mean_square": draw.choice(["worker", "server"]),
            "within_group": draw.chance(0.3),
        }
    out: dict[str, Any] = {"momentum": momentum, "nesterov": momentum != 0 and draw.chance(0.5)}
    if name == "staleness_aware":
        out |= {
            "on": draw.choice(["step", "gradient"]),
            "staleness": draw.choice(["plus_one", "max_one"]),
        }
    if name == "exponential_penalty":
        out["rate"] = 0.2
    if name == "delay_adaptive":
        out["workers"] = 2
    if name == "pipemare":
        out["updates"] = 20.0
    if name == "gap_aware":
        out |= {
            "per": draw.choice(["parameter", "parameter", "layer", "global"]),
            "step": draw.choice(["previous", "tentative"]),
            "tolerance": draw.choice([0.0, 1.0]),
        }
        if draw.chance(0.2):
            out["max_lr"] = 0.1
    return out


def _rate(draw: Draws, lr: float, workers: int, epochs: bool) -> float | LearningRate:
    if draw.chance(0.6):
        return lr
    units: list[Unit] = ["updates", "samples"]
    by = draw.choice([*units, "epochs"] if epochs else units)
    over = {"updates": 20.0, "samples": 80.0, "epochs": 1.5}[by]
    after: list[LearningRate] = [
        ConstantRate(lr),
        StepRate(lr, (over / 2, over), 0.3, by=by),
        LinearRate(lr, over, final=lr / 10, by=by),
        CosineRate(lr, over, by=by),
        ExponentialRate(lr, 0.5, over, by=by),
    ]
    chosen = draw.choice(after)
    return WarmUpRate(chosen, workers, over / 2, by=by) if draw.chance(0.3) else chosen
