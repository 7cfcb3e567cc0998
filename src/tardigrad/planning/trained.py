"""Training the candidates of a plan: one race for each number of workers."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Floats
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.engine.choose import WORTH_COMPILING, Engine
from tardigrad.engine.run import Say
from tardigrad.experiment.spec import Spec
from tardigrad.links import Codec
from tardigrad.planning.advice import Plan
from tardigrad.planning.answer import Priced, TargetResults
from tardigrad.planning.candidates import deadline_of
from tardigrad.planning.goal import Target
from tardigrad.planning.measure import Setting
from tardigrad.planning.needed import Needed
from tardigrad.planning.offers import (
    CODED,
    LOCAL_STEPS,
    WORTH_CODING,
    Candidate,
    coded_policies,
    local_policies,
    offer,
    trained_policies,
)
from tardigrad.planning.race import race
from tardigrad.planning.splits import best, estimated_splits, splits_near
from tardigrad.planning.trial import KeptCurves, Training, WallBudget
from tardigrad.planning.what_if import WithoutStragglers
from tardigrad.policies import Async, Sync

COMMON = 3
"""With several numbers of workers, as many policies with their rules as won with the most."""
ROUGH = 10.0
"""How many runs to the longest time a race is taken to be, in order to choose an engine."""


def trained_answer(
    spec: Spec,
    control: Plan,
    target: Target,
    sizes: Sequence[int],
    price: float | None,
    seeds: int,
    budget: WallBudget,
    kept: KeptCurves,
    say: Say | None = None,
) -> TargetResults:
    """A race on the whole cluster; then, of the policies and rules that did best there, on each
    smaller one. No run lasts longer than the spec's own would, in virtual time."""
    told = say or (lambda line: None)
    setting = control.setting
    horizon_s = longest_s(setting, spec)
    target.name(replace(spec, seed=spec.seed).make_task(), spec.evaluation)
    candidates = every_candidate(setting, spec, control.split.backups, control.times_s)
    training = training_of(spec, setting, target, horizon_s, kept)
    found = [Priced(setting.cluster, race(training, candidates, seeds, budget, say))]
    reached = [_kind(e.candidate) for e in found[0].race.entrants if e.reached]
    won = list(dict.fromkeys(reached))[:COMMON]
    untried: list[int] = []
    in_vain: list[tuple[int, str]] = []
    for workers in sorted(set(sizes) - {setting.cluster.workers}, reverse=True):
        smaller = setting.sized(workers)
        few = replace(spec, cluster={**spec.cluster, "workers": workers})
        times_s = smaller.collect_times_s()
        least = (workers + 1) // 2
        backups = best(
            splits_near(smaller, Needed(), best(estimated_splits(times_s, Needed(), least)).backups)
        ).backups
        like = [c for c in every_candidate(smaller, few, backups, times_s) if _kind(c) in won]
        longer_s = horizon_s * setting.cluster.workers / workers
        told(f"{workers} workers")
        part = training_of(few, smaller, target, longer_s, kept)
        if not like:
            in_vain.append((workers, "none of the best policies can be used"))
        elif budget.spent:
            untried.append(workers)
        else:
            try:
                found.append(Priced(smaller.cluster, race(part, like, seeds, budget, say)))
            except ValueError as error:  # nobody arrived
                untried += [workers] * budget.spent
                in_vain += [] if budget.spent else [(workers, str(error))]
    return TargetResults(target, tuple(found), price, tuple(untried), tuple(in_vain))


def longest_s(setting: Setting, spec: Spec) -> float:
    """How long the spec's own run lasts here, in virtual time."""
    return spec.updates * setting.measure(spec.make_policy()).summary.update_s


def every_candidate(setting: Setting, spec: Spec, backups: int, times_s: Floats) -> list[Candidate]:
    """All that are offered on this cluster."""
    policies = trained_policies(setting.cluster.workers, backups, deadline_of(times_s))
    measured = [setting.measure(policy) for policy in policies]
    local = local_policies(setting.cluster.workers)
    measured += [setting.measure(policy, LOCAL_STEPS) for policy in local]
    if setting.push_share >= WORTH_CODING:
        coded = product(coded_policies(setting.cluster.workers), CODED)
        measured += [setting.measure(policy, codec=codec) for policy, codec in coded]
    clip_norm = spec.work.get("clip_norm")
    return offer(measured, spec.rule, setting.cluster.workers, clip_norm)


def training_of(
    spec: Spec, setting: Setting, target: Target, horizon_s: float, kept: KeptCurves
) -> Training:
    engine: Engine = spec.engine
    if engine == "auto":
        per_s = setting.measure(Async()).summary.gradients_per_s
        engine = "fast" if ROUGH * per_s * horizon_s > WORTH_COMPILING else "exact"
    return Training(spec, setting.cluster, target, horizon_s, engine, kept)


def _kind(candidate: Candidate) -> tuple[str, str, int, Codec]:
    policy, rule = type(candidate.policy).__name__, str(candidate.tuned["name"])
    return policy, rule, candidate.measured.batches, candidate.measured.codec


def without_stragglers_table(
    control: Plan,
    answer: TargetResults | None = None,
    spec: Spec | None = None,
    budget: WallBudget | None = None,
) -> ResultTable:
    """The same cluster, every step of every worker taking the mean over workers of that step."""
    setting = control.setting
    even = replace(setting, cluster=WithoutStragglers(setting.cluster))
    rows: list[tuple[Cell, ...]] = []
    for policy in dict.fromkeys((Sync(), Async(), control.policy)):
        now, then = (s.measure(policy).summary.gradients_per_s for s in (setting, even))
        measured = setting.measure(policy).label
        rows.append((measured, "gradients/s", now, then, then / now))
    if answer is not None and spec is not None and budget is not None:
        rows += [
            (*row[:1], f"s to {answer.target}", *row[1:])
            for row in _trained_evenly(answer, spec, even.cluster, budget)
        ]
    return ResultTable(
        title="If nobody were slower than the others",
        columns=("what", "of", "now", "without stragglers", "÷"),
        rows=tuple(rows),
        notes=("every worker's step takes the mean over all workers of that step",),
        keys=2,
    )


def _trained_evenly(
    answer: TargetResults, spec: Spec, even: TimedCluster, budget: WallBudget
) -> list[tuple[Cell, ...]]:
    """The winner and the best that waits for everybody, trained again."""
    there = next(one for one in answer.sizes if one.cluster.workers == even.workers)
    waiting = [e for e in there.race.entrants if isinstance(e.candidate.policy, Sync) and e.reached]
    rows: list[tuple[Cell, ...]] = []
    for one in dict.fromkeys((*there.race.entrants[:1], *waiting[:1])):
        before = one.trials[0].training
        training = Training(spec, even, before.target, before.horizon_s, before.engine)
        trials = [training.trial(one.candidate, trial.seed) for trial in one.trials]
        for trial in trials:
            trial.train(math.inf, budget)
        reached = [trial.reached.time_s for trial in trials if trial.reached is not None]
        then = statistics.fmean(reached) if len(reached) == len(trials) else None
        rows.append((one.candidate.label, one.mean_s, then, then and then / one.mean_s))
    return rows
