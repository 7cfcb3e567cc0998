"""Server rules: corrections and optimizers, one a file, and the papers' rules as compositions."""

from tardigrad.rules.adagrad import AdaGrad
from tardigrad.rules.adam import Adam
from tardigrad.rules.catalogue import (
    RULES,
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
from tardigrad.rules.dana import Dana
from tardigrad.rules.delay import DelayCompensation
from tardigrad.rules.fasgd import Fasgd
from tardigrad.rules.gap import Gap
from tardigrad.rules.nadam import NAdam
from tardigrad.rules.parts import (
    Correction,
    Nothing,
    Now,
    Optimizer,
    Peek,
    Push,
    Scope,
    Signal,
    combine,
    mean,
    rate,
)
from tardigrad.rules.raw import Raw
from tardigrad.rules.rmsprop import RmsProp
from tardigrad.rules.rule import Rule, RuleOwn, RuleState, Scalars
from tardigrad.rules.sgd import Sgd
from tardigrad.rules.staleness import ExponentialPenalty, StalenessAware
from tardigrad.rules.torch_optim import TorchOptimizer, torch_optimizer

__all__ = [
    "RULES",
    "AdaGrad",
    "Adam",
    "Correction",
    "Dana",
    "DelayCompensation",
    "ExponentialPenalty",
    "Fasgd",
    "Gap",
    "NAdam",
    "Nothing",
    "Now",
    "Optimizer",
    "Peek",
    "Push",
    "Raw",
    "RmsProp",
    "Rule",
    "RuleOwn",
    "RuleState",
    "Scalars",
    "Scope",
    "Sgd",
    "Signal",
    "StalenessAware",
    "TorchOptimizer",
    "adagrad",
    "adam",
    "adam_ga",
    "adam_sa",
    "adamw",
    "combine",
    "dana",
    "dana_ga",
    "dana_sa",
    "delay_compensated",
    "exponential_penalty",
    "fasgd",
    "gap_aware",
    "mean",
    "nadam",
    "rate",
    "rmsprop",
    "sgd",
    "staleness_aware",
    "torch_optimizer",
]
