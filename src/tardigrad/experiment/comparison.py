"""Rules side by side: same schedule, same batches, same initial weights, seed by seed."""

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

from tardigrad.core.checks import count, require
from tardigrad.engine.given import check_parts
from tardigrad.engine.run import Say
from tardigrad.experiment.cells import Experiment, MakeObservers, RunCell
from tardigrad.experiment.kept import keep_outcomes
from tardigrad.experiment.named_rules import rules_named, takes_rate
from tardigrad.experiment.python_experiment import (
    CompareSetting,
    PythonExperiment,
    SeededTask,
    is_task,
)
from tardigrad.experiment.side_by_side import CellProgress
from tardigrad.experiment.spec import Spec, rule_of
from tardigrad.experiment.spec_data import Table
from tardigrad.report import Comparison, title_from
from tardigrad.report.differences import check_baseline
from tardigrad.rules import Rule
from tardigrad.tasks import Task

MOST_SHOWN = 4
"""Timelines of a comparison: as many as a page holds."""
Rules = str | Sequence[str] | Mapping[str, Rule | str | Table]


class Entry(NamedTuple):
    """One line of a comparison."""

    label: str
    spec: Spec


def compare(
    task: Task | SeededTask | Spec | str | Path,
    rules: Rules,
    *,
    seeds: int = 1,
    baseline: str | None = None,
    jobs: int | None = 1,
    folder: str | Path | None = None,
    observers: MakeObservers | None = None,
    say: Say | None = None,
    progress: CellProgress | None = None,
    **setting: Unpack[CompareSetting],
) -> Comparison:
    """Run every rule on the same schedules of late gradients and the same batches.

    Args:
        task: a function of the seed, such as `lambda seed: quadratic(seed=seed)`; a task, which
            then has the same data, batches and initial weights with every seed; or a whole
            experiment, a `tg.Spec` or the path of its file.
        rules: by name, rules or texts as on the command line ("sgd:lr=0.02"); or such texts alone,
            in a list or separated by commas. With a spec, a text takes lr, rate_scale,
            weight_decay, no_decay and ema from the spec's rule unless it says its own.
        seeds: how many, counting up from the setting's `seed`. With the same seed all rules meet
            the same schedule, batches and initial weights.
        baseline: the rule that others are compared with; left out: the first.
        jobs: how many runs at a time, in processes of their own; None: one per core, on a GPU as
            many as make use of it (`experiment.sharing`). The bits are the same. A script that
            uses several needs `if __name__ == "__main__":`.
        folder: where each run is kept when it has ended; left out: nowhere.
        observers: (label, seed) -> the observers of that run.
        say: told, a line at a time, how runs are executed.
        progress: told of each run.
        setting: policy, cluster, updates, seed, shards, engine, link, shard_by, evaluation, limits
            and stop, as in `tg.simulate`; a spec has its own.
    """
    runs: dict[str, Experiment] = {}
    token = secrets.token_hex(8)
    if isinstance(task, str | Path):
        task = Spec.load(task)
    if isinstance(task, Spec):
        require(
            not setting,
            f"the spec says its own {', '.join(setting)}: change it there, as in "
            'tg.Spec.load(FILE, ["updates=100"])',
        )
        for label, rule in rules_named(rules, task.rule).items():
            if isinstance(rule, Rule):
                runs[label] = PythonExperiment.of_spec(task, rule, token)
            else:
                runs[label] = replace(task, rule=rule)
        if any(isinstance(one, PythonExperiment) for one in runs.values()):  # then all of one kind
            runs = {
                n: PythonExperiment.of_spec(task, one.make_rule(), token) for n, one in runs.items()
            }
    else:
        require(
            is_task(task) or callable(task),
            f"task must be a task, a function that makes one of a seed, a tg.Spec or a file's "
            f"path, got {task!r}",
        )
        check_parts(**setting)
        cluster = setting.get("cluster")
        fill = {"seed": setting.get("seed", 0), "workers": cluster.workers if cluster else 1}
        for label, rule in rules_named(rules).items():
            runs[label] = PythonExperiment.of(task, _made(label, rule, fill), token, setting)
    return compare_entries(
        runs, seeds, baseline, jobs, None if folder is None else Path(folder), observers, say,
        progress,
    )  # fmt: skip


def _made(label: str, rule: Rule | Table, fill: Mapping[str, Any]) -> Rule:
    """A rule of an experiment without a spec."""
    if isinstance(rule, Rule):
        return rule
    name = str(rule.get("name", ""))
    require(
        "lr" in rule or not takes_rate(name),
        f'rules[{label!r}] has no lr, and there is no spec to take it from: write "{name}:lr=0.1"',
    )
    return rule_of(rule, fill)


def entries(spec: Spec, rules: str) -> list[Entry]:
    """The spec with each of the rules that a text names."""
    named = rules_named(rules, spec.rule)
    return [
        Entry(label, replace(spec, rule=rule))
        for label, rule in named.items()
        if not isinstance(rule, Rule)
    ]


def compare_entries(
    runs: Mapping[str, Experiment],
    seeds: int = 1,
    baseline: str | None = None,
    jobs: int | None = 1,
    folder: Path | None = None,
    observers: MakeObservers | None = None,
    say: Say | None = None,
    progress: CellProgress | None = None,
    about: Experiment | None = None,
    shown: Collection[str] | None = None,
) -> Comparison:
    """As `compare`, of experiments by label that may differ in anything.

    about: whose spec stands in the folder and title; left out: the first's.
    shown: labels of the runs whose timelines are drawn; left out: some that differ in them.
    """
    count("seeds", seeds)
    check_baseline(list(runs), baseline)
    require(
        observers is None or callable(observers),
        "a comparison is many runs, and each has its own observers: give a function of label and "
        "seed that makes them, such as observers=lambda label, seed: [Mine()]",
    )
    each = [
        (label, replace(one, seed=one.seed + offset))  # type: ignore[type-var]
        for offset in range(seeds)
        for label, one in runs.items()
    ]
    shown = _different(runs) if shown is None else shown
    cells = [
        RunCell(label, one, place, observers=observers, shown=place < len(runs) and label in shown)
        for place, (label, one) in enumerate(each)
    ]
    outcomes = keep_outcomes(cells, folder, jobs, say, progress, about)
    title = title_from((about or cells[0].runs).data(), outcomes[0]["summary"])
    return Comparison.of(title, outcomes, baseline, folder)


def _different(runs: Mapping[str, Experiment]) -> list[str]:
    """Labels of the first few whose schedules are not those of others before them."""
    found: dict[str, str] = {}
    for label, one in runs.items():
        found.setdefault(one.control if one.scheduled_ahead else f"{one.control}, {label}", label)
    return list(found.values())[:MOST_SHOWN]
