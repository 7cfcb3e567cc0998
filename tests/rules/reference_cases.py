"""Every rule and option, each with its slow twin: of a matrix of 2 × 2 and a vector of three."""

from collections.abc import Callable

import tardigrad as tg
from tardigrad import rules
from tardigrad.rules import weights
from tests.rules import reference_newer as new
from tests.rules import reference_optimizers as opt
from tests.rules import references as ref
from tests.rules.lamb import Lamb
from tests.rules.reference_server import Reference

PARTS = [(0, 4), (4, 7)]
SHAPES = [(2, 2), (3,)]
ROWS = [(0, 2), (2, 4), (4, 7)]
LR = 0.06

Twin = Callable[[], Reference]

CASES: dict[str, tuple[tg.Rule, Twin]] = {
    "sgd": (rules.sgd(LR), ref.HeavyBall),
    "sgd momentum": (rules.sgd(LR, momentum=0.9), lambda: ref.HeavyBall(0.9)),
    "sgd negative momentum": (rules.sgd(LR, momentum=-0.4), lambda: ref.HeavyBall(-0.4)),
    "sgd nesterov": (
        rules.sgd(LR, momentum=0.8, nesterov=True),
        lambda: ref.HeavyBall(0.8, nesterov=True),
    ),
    "adam": (rules.adam(LR), opt.AdamLike),
    "adam betas eps": (
        rules.adam(LR, betas=(0.8, 0.95), eps=1e-3),
        lambda: opt.AdamLike(betas=(0.8, 0.95), eps=1e-3),
    ),
    "adamw": (rules.adamw(LR), opt.AdamW),
    "adamw no_decay": (
        rules.adamw(LR, weight_decay=0.2, no_decay=("bias",)),
        lambda: opt.AdamW(decay=0.2, spared=range(4, 7)),
    ),
    "decoupled, staleness": (
        tg.Rule(LR, rules.Adam(), rules.StalenessAware("gradient"), 0.1, decoupled=True),
        lambda: opt.AdamW("staleness", 0.1),
    ),
    "nadam": (rules.nadam(LR), opt.Nadam),
    "nadam betas eps": (
        rules.nadam(LR, (0.8, 0.95), 1e-3, momentum_decay=0.05),
        lambda: opt.Nadam(betas=(0.8, 0.95), eps=1e-3, psi=0.05),
    ),
    "staleness, nadam": (
        tg.Rule(LR, rules.NAdam(), rules.StalenessAware("gradient")),
        lambda: opt.Nadam("staleness"),
    ),
    "rmsprop": (rules.rmsprop(LR), opt.RmsProp),
    "rmsprop momentum": (
        rules.rmsprop(LR, alpha=0.9, eps=1e-6, momentum=0.9),
        lambda: opt.RmsProp(0.9, 1e-6, 0.9),
    ),
    "adagrad": (rules.adagrad(LR), opt.AdaGrad),
    "adagrad eps": (rules.adagrad(LR, eps=0.01), lambda: opt.AdaGrad(0.01)),
    "staleness_aware": (rules.staleness_aware(LR), ref.StalenessAware),
    "staleness_aware momentum": (
        rules.staleness_aware(LR, momentum=0.9),
        lambda: ref.StalenessAware(momentum=0.9),
    ),
    "staleness_aware nesterov": (
        rules.staleness_aware(LR, momentum=0.9, nesterov=True),
        lambda: ref.StalenessAware(momentum=0.9, nesterov=True),
    ),
    "staleness_aware max_one": (
        rules.staleness_aware(LR, momentum=0.5, staleness="max_one"),
        lambda: ref.StalenessAware(staleness="max_one", momentum=0.5),
    ),
    "staleness_aware on gradient": (
        rules.staleness_aware(LR, momentum=0.9, on="gradient"),
        lambda: ref.StalenessAware("gradient", momentum=0.9),
    ),
    "staleness_aware on gradient nesterov": (
        rules.staleness_aware(LR, momentum=0.9, nesterov=True, on="gradient"),
        lambda: ref.StalenessAware("gradient", momentum=0.9, nesterov=True),
    ),
    "staleness_aware on gradient max_one": (
        rules.staleness_aware(LR, on="gradient", staleness="max_one"),
        lambda: ref.StalenessAware("gradient", "max_one"),
    ),
    "exponential_penalty": (
        rules.exponential_penalty(LR, rate=0.3),
        lambda: ref.ExponentialPenalty(0.3),
    ),
    "exponential_penalty nesterov": (
        rules.exponential_penalty(LR, rate=0.2, momentum=0.9, nesterov=True),
        lambda: ref.ExponentialPenalty(0.2, momentum=0.9, nesterov=True),
    ),
    "fasgd": (rules.fasgd(LR), ref.Fasgd),
    "fasgd gamma beta eps": (
        rules.fasgd(LR, gamma=0.8, beta=0.95, eps=1e-2),
        lambda: ref.Fasgd(0.8, 0.95, 1e-2),
    ),
    "fasgd printed": (
        rules.fasgd(LR, estimator="printed"),
        lambda: ref.Fasgd(estimator="printed"),
    ),
    "fasgd magnitude": (
        rules.fasgd(LR, estimator="magnitude"),
        lambda: ref.Fasgd(estimator="magnitude"),
    ),
    "delay_compensated": (rules.delay_compensated(LR), lambda: ref.DelayCompensated(0.04)),
    "delay_compensated momentum": (
        rules.delay_compensated(LR, lam=0.5, momentum=0.9),
        lambda: ref.DelayCompensated(0.5, momentum=0.9),
    ),
    "delay_compensated adaptive": (
        rules.delay_compensated(LR, adaptive=True),
        lambda: ref.DelayCompensated(2.0, adaptive=True),
    ),
    "delay_compensated adaptive server": (
        rules.delay_compensated(
            LR, lam=1.0, adaptive=True, mean_square_decay=0.8, mean_square="server"
        ),
        lambda: ref.DelayCompensated(1.0, adaptive=True, decay=0.8, mean_square="server"),
    ),
    "delay_compensated within_group": (
        rules.delay_compensated(LR, lam=0.7, within_group=True),
        lambda: ref.DelayCompensated(0.7, within_group=True),
    ),
    "delay_compensated within_group adaptive momentum": (
        rules.delay_compensated(LR, adaptive=True, momentum=0.5, within_group=True),
        lambda: ref.DelayCompensated(2.0, adaptive=True, within_group=True, momentum=0.5),
    ),
    "gap_aware": (rules.gap_aware(LR), ref.GapAware),
    "gap_aware heavy ball": (
        rules.gap_aware(LR, nesterov=False),
        lambda: ref.GapAware(nesterov=False),
    ),
    "gap_aware negative momentum": (
        rules.gap_aware(LR, momentum=-0.3),
        lambda: ref.GapAware(momentum=-0.3),
    ),
    "gap_aware momentum 0": (
        rules.gap_aware(LR, momentum=0.0, nesterov=False),
        lambda: ref.GapAware(0.0, nesterov=False),
    ),
    "gap_aware momentum 0 tentative": (
        rules.gap_aware(LR, momentum=0.0, nesterov=False, step="tentative"),
        lambda: ref.GapAware(0.0, nesterov=False, step="tentative"),
    ),
    "gap_aware tentative": (
        rules.gap_aware(LR, step="tentative"),
        lambda: ref.GapAware(step="tentative"),
    ),
    "gap_aware layer": (rules.gap_aware(LR, per="layer"), lambda: ref.GapAware(parts=PARTS)),
    "gap_aware layer tentative": (
        rules.gap_aware(LR, per="layer", step="tentative"),
        lambda: ref.GapAware(parts=PARTS, step="tentative"),
    ),
    "gap_aware global": (
        rules.gap_aware(LR, per="global"),
        lambda: ref.GapAware(parts=[(0, 7)]),
    ),
    "gap_aware global tentative": (
        rules.gap_aware(LR, per="global", step="tentative"),
        lambda: ref.GapAware(parts=[(0, 7)], step="tentative"),
    ),
    "gap_aware tolerance": (
        rules.gap_aware(LR, tolerance=1.5),
        lambda: ref.GapAware(tolerance=1.5),
    ),
    "gap_aware max_lr": (rules.gap_aware(LR, max_lr=0.3), lambda: ref.GapAware(max_lr=0.3)),
    "dana": (rules.dana(LR), lambda: ref.Dana("none")),
    "dana momentum": (rules.dana(LR, momentum=0.5), lambda: ref.Dana("none", 0.5)),
    "dana_sa": (rules.dana_sa(LR), lambda: ref.Dana("staleness")),
    "dana_ga": (rules.dana_ga(LR), lambda: ref.Dana("gap")),
    "adam_sa": (rules.adam_sa(LR), lambda: opt.AdamLike("staleness")),
    "adam_sa betas": (
        rules.adam_sa(LR, betas=(0.7, 0.9), eps=1e-4),
        lambda: opt.AdamLike("staleness", (0.7, 0.9), 1e-4),
    ),
    "adam_ga": (rules.adam_ga(LR), lambda: opt.AdamLike("gap")),
    "delay compensation, adam": (
        tg.Rule(LR, rules.Adam(), rules.DelayCompensation(0.3)),
        lambda: opt.DelayCompensatedAdam(0.3),
    ),
    "staleness, adagrad": (
        tg.Rule(LR, rules.AdaGrad(), rules.StalenessAware("gradient")),
        opt.StalenessAdaGrad,
    ),
    "gap, rmsprop momentum": (
        tg.Rule(LR, rules.RmsProp(momentum=0.9), rules.Gap()),
        lambda: opt.GapRmsProp(momentum=0.9),
    ),
    "lamb, by tensor": (tg.Rule(LR, Lamb()), lambda: opt.Lamb(PARTS)),
    "lamb, by row": (tg.Rule(LR, Lamb("row")), lambda: opt.Lamb(ROWS)),
    "lamb, after a penalty": (
        tg.Rule(LR, Lamb(), rules.StalenessAware("gradient")),
        lambda: opt.Lamb(PARTS, "staleness"),
    ),
    "lamb, after gaps of its own steps": (
        tg.Rule(LR, Lamb(), rules.Gap(step="tentative")),
        lambda: opt.Lamb(PARTS, "gap"),
    ),
    "staleness_weighted": (
        rules.staleness_weighted(LR),
        lambda: new.StalenessWeighted(new.polynomial()),
    ),
    "staleness_weighted polynomial nesterov": (
        rules.staleness_weighted(LR, weights.polynomial(0.8), 0.9, True),
        lambda: new.StalenessWeighted(new.polynomial(0.8), momentum=0.9, nesterov=True),
    ),
    "staleness_weighted hinge": (
        rules.staleness_weighted(LR, weights.hinge()),
        lambda: new.StalenessWeighted(new.hinge()),
    ),
    "staleness_weighted hinge momentum": (
        rules.staleness_weighted(LR, weights.hinge(0.7, 1.5), momentum=0.9),
        lambda: new.StalenessWeighted(new.hinge(0.7, 1.5), momentum=0.9),
    ),
    "fedasync": (rules.fedasync(LR), lambda: new.FedAsync(new.polynomial())),
    "fedasync hinge": (
        rules.fedasync(LR, weights.hinge(0.7, 1)),
        lambda: new.FedAsync(new.hinge(0.7, 1)),
    ),
    "fedasync constant": (
        rules.fedasync(LR, weights.constant()),
        lambda: new.FedAsync(new.constant),
    ),
    "delay_adaptive": (rules.delay_adaptive(LR, 3), lambda: new.DelayAdaptive(3)),
    "delay_adaptive threshold": (
        rules.delay_adaptive(LR, 9, threshold=1.5, momentum=0.9, nesterov=True),
        lambda: new.DelayAdaptive(1.5, momentum=0.9, nesterov=True),
    ),
    "pipemare": (rules.pipemare(LR, 50), lambda: new.PipeMare(50)),
    "pipemare momentum": (
        rules.pipemare(LR, 70, momentum=0.9),
        lambda: new.PipeMare(70, momentum=0.9),
    ),
    "delayed_nesterov": (rules.delayed_nesterov(LR, 3), lambda: new.DelayedNesterov(3)),
    "delayed_nesterov c": (
        rules.delayed_nesterov(LR, 4, 0.8, 0.2),
        lambda: new.DelayedNesterov(4, 0.8, 0.2),
    ),
    "delayed_nesterov every push": (
        rules.delayed_nesterov(LR, 1, c=0.7),
        lambda: new.DelayedNesterov(1, c=0.7),
    ),
    "schedule_free": (rules.schedule_free(LR), new.ScheduleFree),
    "schedule_free beta": (rules.schedule_free(LR, 0.6), lambda: new.ScheduleFree(0.6)),
    "weights, schedule-free": (
        tg.Rule(LR, rules.ScheduleFree(), weights.polynomial()),
        new.WeightedScheduleFree,
    ),
    "muon": (rules.muon(LR, precision="full"), lambda: new.Muon(SHAPES)),
    "muon options": (
        rules.muon(
            LR,
            0.8,
            False,
            adjust_lr="match_rms_adamw",
            precision="full",
            adam_lr=0.5,
            weight_decay=0.2,
            no_decay=("bias",),
        ),
        lambda: new.Muon(SHAPES, 0.8, False, 0.2, True, 0.5, range(4, 7)),
    ),
}
DECAY = 0.05
DECAYED: dict[str, tuple[tg.Rule, Twin]] = {
    "sgd": (
        rules.sgd(LR, 0.9, True, weight_decay=DECAY),
        lambda: ref.HeavyBall(0.9, True, weight_decay=DECAY),
    ),
    "adam": (rules.adam(LR, weight_decay=DECAY), lambda: opt.AdamLike(weight_decay=DECAY)),
    "adamw": (rules.adamw(LR, weight_decay=DECAY), lambda: opt.AdamW(decay=DECAY)),
    "nadam": (rules.nadam(LR, weight_decay=DECAY), lambda: opt.Nadam(weight_decay=DECAY)),
    "rmsprop": (rules.rmsprop(LR, weight_decay=DECAY), lambda: opt.RmsProp(weight_decay=DECAY)),
    "adagrad": (rules.adagrad(LR, weight_decay=DECAY), lambda: opt.AdaGrad(weight_decay=DECAY)),
    "staleness_aware": (
        rules.staleness_aware(LR, weight_decay=DECAY),
        lambda: ref.StalenessAware(weight_decay=DECAY),
    ),
    "exponential_penalty": (
        rules.exponential_penalty(LR, 0.2, weight_decay=DECAY),
        lambda: ref.ExponentialPenalty(0.2, weight_decay=DECAY),
    ),
    "fasgd": (rules.fasgd(LR, weight_decay=DECAY), lambda: ref.Fasgd(weight_decay=DECAY)),
    "delay_compensated": (
        rules.delay_compensated(LR, adaptive=True, weight_decay=DECAY),
        lambda: ref.DelayCompensated(2.0, adaptive=True, weight_decay=DECAY),
    ),
    "gap_aware": (
        rules.gap_aware(LR, weight_decay=DECAY),
        lambda: ref.GapAware(weight_decay=DECAY),
    ),
    "dana": (rules.dana(LR, weight_decay=DECAY), lambda: ref.Dana("none", weight_decay=DECAY)),
    "dana_sa": (
        rules.dana_sa(LR, weight_decay=DECAY),
        lambda: ref.Dana("staleness", weight_decay=DECAY),
    ),
    "dana_ga": (rules.dana_ga(LR, weight_decay=DECAY), lambda: ref.Dana("gap", weight_decay=DECAY)),
    "adam_sa": (
        rules.adam_sa(LR, weight_decay=DECAY),
        lambda: opt.AdamLike("staleness", weight_decay=DECAY),
    ),
    "adam_ga": (
        rules.adam_ga(LR, weight_decay=DECAY),
        lambda: opt.AdamLike("gap", weight_decay=DECAY),
    ),
    "staleness_weighted": (
        rules.staleness_weighted(LR, weight_decay=DECAY),
        lambda: new.StalenessWeighted(new.polynomial(), weight_decay=DECAY),
    ),
    "fedasync": (
        rules.fedasync(LR, weight_decay=DECAY),
        lambda: new.FedAsync(new.polynomial(), DECAY),
    ),
    "delay_adaptive": (
        rules.delay_adaptive(LR, 2, weight_decay=DECAY),
        lambda: new.DelayAdaptive(2, weight_decay=DECAY),
    ),
    "pipemare": (
        rules.pipemare(LR, 50, weight_decay=DECAY),
        lambda: new.PipeMare(50, weight_decay=DECAY),
    ),
    "delayed_nesterov": (
        rules.delayed_nesterov(LR, 3, weight_decay=DECAY),
        lambda: new.DelayedNesterov(3, weight_decay=DECAY),
    ),
    "schedule_free": (
        rules.schedule_free(LR, weight_decay=DECAY),
        lambda: new.ScheduleFree(weight_decay=DECAY),
    ),
    "muon": (
        rules.muon(LR, precision="full", weight_decay=DECAY),
        lambda: new.Muon(SHAPES, decay=DECAY),
    ),
}
ALL = CASES | {f"{name} weight_decay": case for name, case in DECAYED.items()}
