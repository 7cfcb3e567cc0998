"""Whether a plan that trains chooses the best of its candidates, and what that takes."""

import math
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.experiment.spec import Spec
from tardigrad.planning.advice import advise
from tardigrad.planning.goal import Target
from tardigrad.planning.offers import Candidate
from tardigrad.planning.race import race
from tardigrad.planning.trained import every_candidate, longest_s, training_of
from tardigrad.planning.trial import KeptCurves, Training, WallBudget

SEEDS = 5
HOPELESS = 2.5
"""Who takes so many times as long as the best with a seed is not trained further with it."""


class Case(NamedTuple):
    """A task and what is wanted of it."""

    task: dict[str, Any]
    lr: float
    updates: int
    target: str


class Cases(NamedTuple):
    """Every cluster with every task; the seeds are this one and those that follow."""

    clusters: dict[str, dict[str, Any]]
    tasks: dict[str, Case]
    seed: int


TUNED_ON = Cases(
    {
        "gamma, different machines": {"name": "gamma", "workers": 8, "heterogeneous": True},
        "stragglers": {"name": "stragglers", "workers": 16, "straggle": 0.05},
        "trace alibaba_job1": {"name": "trace", "path": "alibaba_job1"},
    },
    {
        "logistic regression": Case({"name": "logistic_regression"}, 0.3, 400, "loss=0.42"),
        "MNIST MLP": Case({"name": "mnist_mlp", "validation": 1000}, 0.05, 1500, "loss=0.5"),
    },
    seed=0,
)
"""With these the first numbers of the race were chosen."""
FRESH = Cases(
    {
        "gamma, 12 different machines": {"name": "gamma", "workers": 12, "heterogeneous": True},
        "one of 10 machines 6 times slower": {
            "name": "constant",
            "workers": 10,
            "step_s": [1.0] * 9 + [6.0],
        },
        "trace bytedance_se": {"name": "trace", "path": "bytedance_se"},
    },
    {
        "logistic regression": Case(
            {"name": "logistic_regression", "features": 40, "margin": 4.0}, 0.1, 600, "loss=0.3"
        ),
        "MNIST MLP": Case(
            {"name": "mnist_mlp", "batch_size": 16, "validation": 1000}, 0.03, 1500, "accuracy=0.92"
        ),
    },
    seed=20,
)
"""Written down before any was run, the targets by one worker's plain training alone. They showed
that an earlier race lost the best, and how much seeds differ (`race.behind`)."""


def bench_plan(quick: bool = False, fresh: bool = False, trace: str | None = None) -> ResultTable:
    """Whether `plan` chooses what all candidates run to the target say is best

    Every candidate is trained with every seed, but with a seed for no longer than 2.5 times the
    best time; then the plan's choice is set beside the best mean time. `quick` has one cluster,
    one task and three seeds. `fresh` has other cases; a `trace`, the name or the file of one,
    stands in place of their clusters.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    cases = FRESH if fresh or trace is not None else TUNED_ON
    if trace is not None:
        on = {f"trace {Path(trace).stem}": {"name": "trace", "path": trace}}
        cases = cases._replace(clusters=on)
    try:
        pairs = [(c, t) for t in cases.tasks for c in cases.clusters]
        seeds = 3 if quick else SEEDS
        rows = [_row(cases, *pair, seeds) for pair in (pairs[:1] if quick else pairs)]
    finally:
        torch.set_num_threads(threads)
    return ResultTable(
        title=f"What a plan chooses, beside the best of all its candidates over {seeds} seeds",
        columns=(
            *("cluster", "task", "candidates", "within 10%", "chosen", "its s", "best", "best's s"),
            *("chosen ÷ best", "runs", "plan, wall s", "plan, CPU s", "all, CPU s"),
        ),
        rows=tuple(rows),
        notes=(
            "within 10%: how many candidates are that near the best one's time, itself included",
            "all: every candidate with every seed, what the plan had trained included",
        ),
        keys=2,
    )


def _row(cases: Cases, cluster: str, task: str, seeds: int) -> tuple[Cell, ...]:
    case = cases.tasks[task]
    spec = Spec.of(
        {
            "updates": case.updates,
            "task": case.task,
            "rule": {"name": "sgd", "lr": case.lr},
            "cluster": cases.clusters[cluster],
            "seed": cases.seed,
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
    found = race(training, candidates, seeds, WallBudget(math.inf))
    took_s, work_s = time.perf_counter() - began, time.process_time() - worked
    means = _all_means(training, candidates, seeds)
    whole_s = time.process_time() - worked
    chosen = found.entrants[0].candidate
    best = min(candidates, key=lambda c: means[c.key])
    return (
        cluster,
        task,
        len(candidates),
        sum(mean_s <= 1.1 * means[best.key] for mean_s in means.values()),
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
