"""Whether a plan that trains chooses the best of its candidates, and what that takes."""

import math
import statistics
import time
from typing import Any, NamedTuple

import torch

from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.experiment.spec import Spec
from tardigrad.planning.advice import advise
from tardigrad.planning.goal import Target
from tardigrad.planning.offers import Candidate
from tardigrad.planning.race import race
from tardigrad.planning.trained import every_candidate, longest_s, promising, training_of
from tardigrad.planning.trial import KeptCurves, Training, WallBudget

SEEDS = 5
HOPELESS = 2.5
"""Who takes so many times as long as the best with a seed is not trained further with it."""
CLUSTERS: dict[str, dict[str, Any]] = {
    "gamma, different machines": {"name": "gamma", "workers": 8, "heterogeneous": True},
    "stragglers": {"name": "stragglers", "workers": 16, "straggle": 0.05},
    "trace alibaba_job1": {"name": "trace", "path": "alibaba_job1"},
}


class Case(NamedTuple):
    task: dict[str, Any]
    lr: float
    updates: int
    target: str


TASKS = {
    "logistic regression": Case({"name": "logistic_regression"}, 0.3, 400, "loss=0.42"),
    "MNIST MLP": Case({"name": "mnist_mlp", "validation": 1000}, 0.05, 1500, "loss=0.5"),
}


def bench_plan(quick: bool = False) -> ResultTable:
    """Whether `plan` chooses what all candidates run to the target say is best

    Every candidate is trained with every seed, but with a seed for no longer than 2.5 times the
    best time; then the plan's choice is set beside the best mean time. `quick` has one cluster,
    one task and three seeds.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        cases = [(c, t) for t in TASKS for c in CLUSTERS]
        seeds = 3 if quick else SEEDS
        rows = [_row(cluster, task, seeds) for cluster, task in (cases[:1] if quick else cases)]
    finally:
        torch.set_num_threads(threads)
    return ResultTable(
        title=f"What a plan chooses, beside the best of all its candidates over {seeds} seeds",
        columns=(
            *("cluster", "task", "candidates", "chosen", "its s", "best", "best's s"),
            *("chosen ÷ best", "runs", "plan, wall s", "plan, CPU s", "all, CPU s"),
        ),
        rows=tuple(rows),
        notes=("all: every candidate with every seed, what the plan had trained included",),
        keys=2,
    )


def _row(cluster: str, task: str, seeds: int) -> tuple[Cell, ...]:
    case = TASKS[task]
    spec = Spec.of(
        {
            "updates": case.updates,
            "task": case.task,
            "rule": {"name": "sgd", "lr": case.lr},
            "cluster": CLUSTERS[cluster],
            "engine": "fast",
        }
    )
    made = spec.make_cluster()
    control = advise(made, gradients=5000)  # type: ignore[arg-type]
    candidates = every_candidate(control.setting, spec, control.split.backups, control.times_s)
    horizon_s = longest_s(control.setting, spec)
    target, kept = Target.of(case.target), KeptCurves(None)
    training = training_of(spec, control.setting, target, horizon_s, kept)
    began, worked = time.perf_counter(), time.process_time()
    found = race(training, promising(candidates), seeds, WallBudget(math.inf))
    took_s, work_s = time.perf_counter() - began, time.process_time() - worked
    means = _all_means(training, candidates, seeds)
    whole_s = time.process_time() - worked
    chosen = found.entrants[0].candidate
    best = min(candidates, key=lambda c: means[c.key])
    return (
        cluster,
        task,
        len(candidates),
        chosen.label,
        means[chosen.key],
        best.label,
        means[best.key],
        means[chosen.key] / means[best.key],
        found.trials,
        took_s,
        work_s,
        whole_s,
    )


def _all_means(training: Training, candidates: list[Candidate], seeds: int) -> dict[str, float]:
    """Mean time of each over all seeds; infinite where one was given up."""
    times: dict[str, list[float]] = {candidate.key: [] for candidate in candidates}
    budget = WallBudget(math.inf)
    for seed in range(seeds):
        trials = [training.trial(candidate, seed) for candidate in candidates]
        best_s = math.inf
        for until_s in (*training.times_s[::4], math.inf):  # side by side, so that best_s is early
            for trial in trials:
                trial.train(min(until_s, HOPELESS * best_s), budget)
                reached = trial.reached
                best_s = min(best_s, math.inf if reached is None else reached.time_s)
            if until_s >= HOPELESS * best_s:
                break
        for trial in trials:
            reached = trial.reached
            times[trial.candidate.key].append(math.inf if reached is None else reached.time_s)
    return {key: statistics.fmean(each) for key, each in times.items()}
