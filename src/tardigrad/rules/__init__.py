"""Server rules: corrections and optimizers, one a file, and the papers' rules as compositions."""

from tardigrad.rules import weights
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
from tardigrad.rules.delay_adaptive import DelayAdaptive, delay_adaptive
from tardigrad.rules.delayed_nesterov import DelayedNesterov, delayed_nesterov
from tardigrad.rules.fasgd import Fasgd
from tardigrad.rules.fedasync import FedAsync, fedasync
from tardigrad.rules.gap import Gap
from tardigrad.rules.muon import Muon, muon
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
from tardigrad.rules.pipemare import PipeMare, pipemare
from tardigrad.rules.raw import Raw
from tardigrad.rules.rmsprop import RmsProp
from tardigrad.rules.rule import Rule, RuleOwn, RuleState, Scalars
from tardigrad.rules.schedule_free import ScheduleFree, schedule_free
from tardigrad.rules.sgd import Sgd
from tardigrad.rules.staleness import ExponentialPenalty, StalenessAware
from tardigrad.rules.torch_optim import TorchOptimizer, torch_optimizer
from tardigrad.rules.weights import (
    WEIGHTS,
    ConstantWeight,
    HingeWeight,
    PolynomialWeight,
    StalenessWeight,
    staleness_weighted,
)

__all__ = [
    "RULES",
    "WEIGHTS",
    "AdaGrad",
    "Adam",
    "ConstantWeight",
    "Correction",
    "Dana",
    "DelayAdaptive",
    "DelayCompensation",
    "DelayedNesterov",
    "ExponentialPenalty",
    "Fasgd",
    "FedAsync",
    "Gap",
    "HingeWeight",
    "Muon",
    "NAdam",
    "Nothing",
    "Now",
    "Optimizer",
    "Peek",
    "PipeMare",
    "PolynomialWeight",
    "Push",
    "Raw",
    "RmsProp",
    "Rule",
    "RuleOwn",
    "RuleState",
    "Scalars",
    "ScheduleFree",
    "Scope",
    "Sgd",
    "Signal",
    "StalenessAware",
    "StalenessWeight",
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
    "delay_adaptive",
    "delay_compensated",
    "delayed_nesterov",
    "exponential_penalty",
    "fasgd",
    "fedasync",
    "gap_aware",
    "mean",
    "muon",
    "nadam",
    "pipemare",
    "rate",
    "rmsprop",
    "schedule_free",
    "sgd",
    "staleness_aware",
    "staleness_weighted",
    "torch_optimizer",
    "weights",
]
