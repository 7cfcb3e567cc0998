"""The papers' rules by their names: each a correction in front of an optimizer.

Those that have a part to themselves stand beside it, in its file.

The first line of each docstring is the formula that `tardigrad list rules` prints. τ is the
staleness (delay + 1), g the arriving gradient plus weight_decay·θ, v momentum, η the rate now.
"""

from collections.abc import Callable
from typing import Literal

from tardigrad.core.checks import require
from tardigrad.rules.adagrad import AdaGrad
from tardigrad.rules.adam import Adam
from tardigrad.rules.dana import Dana
from tardigrad.rules.delay import DelayCompensation
from tardigrad.rules.delay_adaptive import delay_adaptive
from tardigrad.rules.delayed_nesterov import delayed_nesterov
from tardigrad.rules.fasgd import Fasgd
from tardigrad.rules.fedasync import fedasync
from tardigrad.rules.gap import Gap
from tardigrad.rules.muon import muon
from tardigrad.rules.nadam import NAdam
from tardigrad.rules.pipemare import pipemare
from tardigrad.rules.rates import Rate
from tardigrad.rules.rmsprop import RmsProp
from tardigrad.rules.rule import Rule
from tardigrad.rules.schedule_free import schedule_free
from tardigrad.rules.sgd import Sgd
from tardigrad.rules.staleness import ExponentialPenalty, StalenessAware
from tardigrad.rules.weights import staleness_weighted


def sgd(lr: Rate, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0) -> Rule:
    """v ← γ v + g; θ ← θ − η v, or with Nesterov θ ← θ − η (g + γ v)

    Robbins and Monro 1951; momentum: Polyak 1964, Sutskever et al. 2013. As `torch.optim.SGD`.
    """
    return Rule(lr, Sgd(momentum, nesterov), weight_decay=weight_decay)


def adam(
    lr: Rate,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Rule:
    """m ← β1 m + (1−β1) g; u ← β2 u + (1−β2) g²; θ ← θ − η m̂ / (√û + ε)

    Kingma and Ba 2015. As `torch.optim.Adam`.
    """
    return Rule(lr, Adam(betas, eps), weight_decay=weight_decay)


def adamw(
    lr: Rate,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.01,
    no_decay: tuple[str, ...] = (),
) -> Rule:
    """m ← β1 m + (1−β1) g; u ← β2 u + (1−β2) g²; θ ← (1 − η wd) θ − η m̂ / (√û + ε)

    Adam with decoupled weight decay (Loshchilov and Hutter 2019, Alg. 2), which g does not hold
    here. With one worker it equals `torch.optim.AdamW` bit for bit.
    """
    return Rule(lr, Adam(betas, eps), weight_decay=weight_decay, decoupled=True, no_decay=no_decay)


def nadam(
    lr: Rate,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    momentum_decay: float = 4e-3,
    weight_decay: float = 0.0,
    decoupled: bool = False,
) -> Rule:
    """m, u as Adam's; θ ← θ − η ((1−μ) g / (1−Π) + μ' m / (1−Π μ')) / (√û + ε)

    Dozat 2016; μ, μ' and Π are told at `NAdam`.
    """
    optimizer = NAdam(betas, eps, momentum_decay)
    return Rule(lr, optimizer, weight_decay=weight_decay, decoupled=decoupled)


def rmsprop(
    lr: Rate,
    alpha: float = 0.99,
    eps: float = 1e-8,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> Rule:
    """u ← α u + (1−α) g²; v ← γ v + g / (√u + ε); θ ← θ − η v

    Tieleman and Hinton 2012. As `torch.optim.RMSprop`.
    """
    return Rule(lr, RmsProp(alpha, eps, momentum), weight_decay=weight_decay)


def adagrad(lr: Rate, eps: float = 1e-10, weight_decay: float = 0.0) -> Rule:
    """u ← u + g²; θ ← θ − η g / (√u + ε)

    Duchi et al. 2011. As `torch.optim.Adagrad`.
    """
    return Rule(lr, AdaGrad(eps), weight_decay=weight_decay)


def staleness_aware(
    lr: Rate,
    momentum: float = 0.0,
    nesterov: bool = False,
    on: Literal["step", "gradient"] = "step",
    staleness: Literal["plus_one", "max_one"] = "plus_one",
    weight_decay: float = 0.0,
) -> Rule:
    """v ← γ v + g; θ ← θ − (η/τ) v   (on="gradient": v ← γ v + g/τ; θ ← θ − η v)

    SASGD: Zhang 2015; Barkai et al. 2020, Alg. 3 and 5.
    """
    return Rule(
        lr,
        Sgd(momentum, nesterov),
        StalenessAware(on, staleness),
        weight_decay=weight_decay,
    )


def exponential_penalty(
    lr: Rate,
    rate: float,
    momentum: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
) -> Rule:
    """v ← γ v + g; θ ← θ − η exp(−ρ (τ−1)) v

    Chan and Lane 2014; `rate` is ρ.
    """
    return Rule(
        lr,
        Sgd(momentum, nesterov),
        ExponentialPenalty(rate),
        weight_decay=weight_decay,
    )


def fasgd(
    lr: Rate,
    gamma: float = 0.9,
    beta: float = 0.9,
    eps: float = 1e-4,
    estimator: Literal["std", "printed", "magnitude"] = "std",
    weight_decay: float = 0.0,
) -> Rule:
    """v ← β v + (1−β) √(E[g²] − E[g]² + ε); θ ← θ − η g / (v τ)

    Odena 2016; the choices are told at `Fasgd`.
    """
    return Rule(lr, Sgd(), Fasgd(gamma, beta, eps, estimator), weight_decay=weight_decay)


def delay_compensated(
    lr: Rate,
    lam: float | None = None,
    adaptive: bool = False,
    mean_square_decay: float = 0.95,
    mean_square: Literal["worker", "server"] = "worker",
    momentum: float = 0.0,
    within_group: bool = False,
    weight_decay: float = 0.0,
) -> Rule:
    """v ← γ v + g + λ g² (θ − view); θ ← θ − η v

    DC-ASGD-c (λ = lam = 0.04) and, adaptive, DC-ASGD-a (λ = lam/√MS, lam = 2); Zheng et al. 2017.
    within_group=True with a synchronous policy is DC-SSGD: the group's gradients one after another
    at η/M, each compensated for those before it (choice: the paper only mentions it).
    """
    if lam is None:
        lam = 2.0 if adaptive else 0.04
    return Rule(
        lr,
        Sgd(momentum),
        DelayCompensation(lam, adaptive, mean_square_decay, mean_square),
        weight_decay=weight_decay,
        within_group=within_group,
    )


def gap_aware(
    lr: Rate,
    momentum: float = 0.9,
    nesterov: bool = True,
    per: Literal["parameter", "layer", "global"] = "parameter",
    step: Literal["previous", "tentative"] = "previous",
    max_lr: float | None = None,
    tolerance: float = 0.0,
    weight_decay: float = 0.0,
) -> Rule:
    """G = |θ − view| / (η_max rms(v)) + 1; v ← γ v + g/G; θ ← θ − η v (Nesterov: g/G + γ v)

    Barkai et al. 2020, Alg. 4 and 14; the choices are told at `Gap`.
    """
    require(not nesterov or momentum != 0, "momentum=0 has no Nesterov form: add nesterov=False")
    return Rule(
        lr,
        Sgd(momentum, nesterov, keep_velocity=step == "previous"),
        Gap(per, step, max_lr, tolerance),
        weight_decay=weight_decay,
    )


def dana(lr: Rate, momentum: float = 0.9, weight_decay: float = 0.0) -> Rule:
    """v_i ← γ v_i + g; θ ← θ − η v_i; sent: θ − η γ Σ v_j

    DANA-Zero: Barkai et al. 2020, Alg. 6.
    """
    return Rule(lr, Dana(momentum), weight_decay=weight_decay)


def dana_sa(lr: Rate, momentum: float = 0.9, weight_decay: float = 0.0) -> Rule:
    """v_i ← γ v_i + g/τ; θ ← θ − η v_i; sent: θ − η γ Σ v_j

    Barkai et al. 2020, Alg. 7.
    """
    return Rule(lr, Dana(momentum), StalenessAware("gradient"), weight_decay=weight_decay)


def dana_ga(lr: Rate, momentum: float = 0.9, weight_decay: float = 0.0) -> Rule:
    """v_i ← γ v_i + g/G; θ ← θ − η v_i; sent: θ − η γ Σ v_j

    Barkai et al. 2020, Alg. 8. The gap is against the sent vector; u = γ v_i + g, because v_i is
    still 0 when a worker first comes; its mean square is one for the server (choice).
    """
    return Rule(lr, Dana(momentum), Gap(step="tentative"), weight_decay=weight_decay)


def adam_sa(
    lr: Rate,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Rule:
    """m ← β1 m + (1−β1) g/τ; u ← β2 u + (1−β2) g²; θ ← θ − η m̂ / (√û + ε)

    Barkai et al. 2020, Alg. 10: the penalty goes on the first moment only.
    """
    return Rule(lr, Adam(betas, eps), StalenessAware("gradient"), weight_decay=weight_decay)


def adam_ga(
    lr: Rate,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
) -> Rule:
    """m ← β1 m + (1−β1) g/G; u ← β2 u + (1−β2) g²; θ ← θ − η m̂ / (√û + ε)

    Barkai et al. 2020, Alg. 11; C from the tentative Adam direction (choice, told at `Gap`).
    """
    return Rule(lr, Adam(betas, eps), Gap(step="tentative"), weight_decay=weight_decay)


RULES: dict[str, Callable[..., Rule]] = {
    factory.__name__: factory
    for factory in (
        sgd,
        adam,
        adamw,
        nadam,
        rmsprop,
        adagrad,
        staleness_aware,
        exponential_penalty,
        fasgd,
        delay_compensated,
        gap_aware,
        dana,
        dana_sa,
        dana_ga,
        adam_sa,
        adam_ga,
        staleness_weighted,
        fedasync,
        delay_adaptive,
        pipemare,
        delayed_nesterov,
        schedule_free,
        muon,
    )
}
