"""`tg.plan`: what to run on a cluster, by its times and, where a task is given, by training."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import tomli_w
import torch

from tardigrad.clusters import CLUSTERS, TimedCluster, Trace
from tardigrad.core.checks import count, not_negative, of_kind, require
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.result_files import write
from tardigrad.engine.run import Say
from tardigrad.experiment.spec import CLUSTER, LINK, STRUCTURE, WORK, Spec
from tardigrad.experiment.spec_data import changed, read_toml, with_new_keys
from tardigrad.links import Full
from tardigrad.planning.advice import Plan, advise
from tardigrad.planning.answer import TargetResults
from tardigrad.planning.answer_figure import answer_figure
from tardigrad.planning.figures import draw_plan
from tardigrad.planning.goal import Target, seconds_of
from tardigrad.planning.measure import Setting, label
from tardigrad.planning.needed import Needed
from tardigrad.planning.recommended import recommended, recommended_run, section
from tardigrad.planning.tables import collect_table, policies_table, speedup_table, splits_table
from tardigrad.planning.trained import trained_answer, without_stragglers_table
from tardigrad.planning.trial import KeptCurves, WallBudget
from tardigrad.planning.what_if import Failures, goodput
from tardigrad.work import OneGradient

FIGURE, RECOMMENDED, CURVES = "plan.png", "recommended.toml", "curves.jsonl"
BUDGET = "5m"
NOT_PROGRESS = (
    "these are gradients, not progress: how much a late or a larger update teaches is not in a "
    "schedule; give --spec FILE and --target loss=… to find out"
)


@dataclass(frozen=True, repr=False)
class Planned:
    """What a plan found.

    Args:
        name: of what was planned for.
        control: what times alone say.
        spec: the experiment that is recommended, as plain data.
        guesses: what the log did not say itself.
        answer: what training said; None where no task was given.
        what_if: tables of what was asked beside that.
    """

    name: str
    control: Plan
    spec: Mapping[str, Any]
    guesses: tuple[str, ...] = ()
    answer: TargetResults | None = None
    what_if: tuple[ResultTable, ...] = ()

    @property
    def why(self) -> str:
        """A paragraph: what to run, and why."""
        if self.answer is not None:
            return self.answer.why()
        return f"{label(self.control.policy)}: {self.control.why}"

    def tables(self) -> list[ResultTable]:
        """With a task, who reaches the target when and what it costs; else what schedules say."""
        if self.answer is not None:
            return [self.answer.table(), *self.what_if]
        control = self.control
        tables = [policies_table(control), collect_table(control), splits_table(control)]
        if len(control.speedups) > 1:
            tables.append(speedup_table(control))
        return [*tables, *self.what_if]

    def plot(self, path: str | Path) -> None:
        """Time against cost with a task; else when gradients come and what waiting costs."""
        sizes = [] if self.answer is None else [one.cluster.workers for one in self.answer.sizes]
        most = self.control.setting.cluster.workers
        least = min(sizes, default=most)
        title = f"{self.name}: {most if least == most else f'{least} to {most}'} workers"
        if self.answer is None:
            draw_plan(self.control, Path(path), title)
        else:
            answer_figure(self.answer, title).savefig(path, dpi=120)

    def data(self) -> dict[str, Any]:
        """All of it as plain data, for JSON."""
        return {
            "recommended": dict(self.spec),
            "why": self.why,
            "guesses": list(self.guesses),
            "progress": self.answer is not None,
            **({} if self.answer is None else {"answer": self.answer.data()}),
            "tables": [table.data() for table in self.tables()],
        }

    def save(self, folder: str | Path) -> None:
        """The figure, the recommended experiment and plan.json."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.plot(folder / FIGURE)
        write(folder / RECOMMENDED, f"# {self.why}\n{tomli_w.dumps(self.spec)}")
        write(folder / "plan.json", json.dumps(self.data(), indent=2) + "\n")

    def __str__(self) -> str:
        return "\n\n".join([*map(str, self.tables()), self.why])

    def __repr__(self) -> str:
        return f"Planned({self.name}): {self.why}"


def plan(
    where: str | Path | TimedCluster,
    spec: str | Path | Spec | None = None,
    target: str | None = None,
    *,
    changes: Sequence[str] = (),
    price: float | None = None,
    budget: str | float = BUDGET,
    seeds: int = 5,
    workers: int | str | None = None,
    without_stragglers: bool = False,
    failures: Failures | None = None,
    needed: Needed | None = None,
    gradients: int = 20_000,
    async_gain: float = 1.5,
    folder: str | Path | None = None,
    say: Say | None = None,
) -> Planned:
    """Say what to run on a cluster: how long until the model is this good, and what it costs.

    Without a target, policies are compared by simulated schedules alone: gradients per second,
    which are not progress. With one, at most 40 candidates (policies × backups × rules × rates,
    and codecs where a gradient's bytes take a tenth of a step's time or more) are trained in
    virtual time on the spec's task, by successive halving with paired seeds, until it is clear
    which reaches the target first or the budget is spent.

    Args:
        where: a log of step times in any form that `Trace` takes, a name of `tardigrad list
            traces`, a spec or a TOML file with [cluster] alone, or a cluster.
        spec: the experiment whose task and rule are trained; its cluster is replaced by `where`.
        target: such as "loss=0.5" or "accuracy=0.9", of the first split that is evaluated.
        changes: to the spec, such as "updates=4000" or "cluster.order=recorded".
        price: what one worker costs an hour.
        budget: how much of this machine's time it may take, such as "5m".
        seeds: at most so many, counting up from the spec's.
        workers: how many machines there are, or from how many to how many ("8:64": 8, 16, 32, 64).
        without_stragglers: also tell what it would be if nobody were slower than the others.
        failures: also tell what share of the gradients is left when workers fail.
        needed: without a target: updates needed by gradients per update.
        gradients: how many each policy is simulated for (see `Setting`).
        async_gain: without a target: how much faster asynchrony must be to be worth its staleness.
        folder: where curves are kept while they are made, so that a plan that was stopped goes on;
            left out: nowhere. `Planned.save` writes what was found.
        say: told, a line at a time, how it goes.
    """
    of_kind(
        "where",
        where,
        (str, PathLike, TimedCluster),
        "the path of a log of step times, a name of `tardigrad list traces`, or a cluster",
        "tg.Gamma(workers=8)",
    )
    if spec is not None:
        kinds = (str, PathLike, Spec)
        of_kind("spec", spec, kinds, "a tg.Spec or the path of its file", '"a.toml"')
    sizes = _sizes(workers)
    data, name = _data(where, spec, changes, max(sizes, default=None))
    cluster = _cluster(data)
    guesses = _guessed(cluster, name, sizes)
    goal = _goal(target, data, price, needed)
    count("seeds", seeds)
    seconds = seconds_of("budget", budget)
    control = advise(
        cluster, needed, gradients, data.get("shards", 1), data.get("seed", 0), async_gain
    )
    what_if = [] if failures is None else [_goodput_table(control, failures)]
    if goal is None:
        if without_stragglers:
            what_if.append(without_stragglers_table(control))
        chosen = recommended(control, data)
        return Planned(name, control, chosen, guesses, None, tuple(what_if))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as comparisons do: models are small, and bits the same everywhere
    try:
        experiment = Spec.of({**data, "policy": data.get("policy", "async")})
        kept = KeptCurves(None if folder is None else Path(folder) / CURVES)
        answer = trained_answer(
            experiment, control, goal, sizes, price, seeds, WallBudget(seconds), kept, say
        )
        if without_stragglers:
            what_if.append(
                without_stragglers_table(control, answer, experiment, WallBudget(seconds))
            )
    finally:
        torch.set_num_threads(threads)
    chosen = recommended_run(answer.winner, goal, answer.best.cluster, data)
    return Planned(name, control, chosen, guesses, answer, tuple(what_if))


def _data(
    where: str | Path | TimedCluster,
    spec: str | Path | Spec | None,
    changes: Sequence[str],
    workers: int | None,
) -> tuple[dict[str, Any], str]:
    """The experiment as plain data, and a name for it."""
    base: dict[str, Any] = {}
    if spec is not None:
        base = dict(spec.data()) if isinstance(spec, Spec) else dict(read_toml(Path(spec)))
    if isinstance(where, TimedCluster):
        kinds = tuple(CLUSTERS.values())
        require(
            type(where) in kinds,
            f"{type(where).__name__} is of your own: name it in a spec file, and plan with that",
        )
        found: dict[str, Any] = {"cluster": section(where, CLUSTERS)}
        name = type(where).__name__
    elif Path(where).suffix == ".toml":
        found, name = dict(read_toml(Path(where))), Path(where).name
        require("cluster" in found, f"{where} has no [cluster]: say there what the step times are")
    else:
        found, name = {"cluster": {"name": "trace", "path": str(where)}}, Path(where).name
    if base:
        found = {**base, "cluster": found["cluster"]}
    if workers is not None:
        changes = [*changes, f"cluster.workers={workers}"]
    data: dict[str, Any] = with_new_keys(changed(found, changes))
    return data, name


def _cluster(data: Mapping[str, Any]) -> TimedCluster:
    cluster = STRUCTURE.named(CLUSTER, "cluster", data["cluster"])
    require(
        isinstance(cluster, TimedCluster),
        "a plan is about time, and a dispatcher has none: use a cluster with times, such as gamma",
    )
    link = data.get("link", "full")
    if isinstance(link, Mapping):  # a codec may stand there alone
        link = {"name": "full", **link}
    require(
        STRUCTURE.named(LINK, "link", link) == Full(),
        "a plan compares policies where every message is sent whole: plan with link=full, and put "
        "the link into what is recommended",
    )
    timed: TimedCluster = cluster
    fill = {"seed": data.get("seed", 0), "workers": timed.workers}
    require(
        type(STRUCTURE.named(WORK, "work", data.get("work", "gradient"), fill)) is OneGradient,
        "a plan is made for workers that push a gradient of one batch: plan with work=gradient, "
        "and put the work into what is recommended",
    )
    return timed


def _guessed(cluster: TimedCluster, name: str, sizes: Sequence[int]) -> tuple[str, ...]:
    if not isinstance(cluster, Trace):
        return ()
    log = cluster.log()
    require(
        log.workers > 1 or bool(sizes) or cluster.workers > 1,
        f"{name} has the times of one worker, who waits for nobody: give --workers N to suppose "
        "that there are N like it",
    )
    return log.guesses


def _goal(
    target: str | None, data: Mapping[str, Any], price: float | None, needed: Needed | None
) -> Target | None:
    if price is not None:
        not_negative("price", price)
        require(
            target is not None,
            "price needs a target: without training nobody knows how long the workers are needed; "
            "give --spec FILE and --target loss=…",
        )
    if target is None:
        return None
    goal = Target.of(target)
    require(
        "task" in data and "rule" in data,
        f"target {goal} needs something to train: give --spec FILE with [task] and [rule]",
    )
    require(
        needed is None,
        "needed gives the updates needed and target finds them out by training: use one of the two",
    )
    return goal


def _sizes(workers: int | str | None) -> list[int]:
    """One number, or powers of two from the first times of a range to its end."""
    if workers is None:
        return []
    low, colon, high = str(workers).partition(":")
    words = f"workers is a number or a range such as 8:64, got {workers!r}"
    require(low.strip().isdigit() and (not colon or high.strip().isdigit()), words)
    first, last = int(low), int(high or low)
    require(1 <= first <= last, words)
    out = []
    while first < last:
        out.append(first)
        first *= 2
    return [*out, last]


def _goodput_table(control: Plan, failures: Failures) -> ResultTable:
    setting: Setting = control.setting
    rows, estimated = [], False
    for measured in control.measured:
        found = goodput(setting, measured.policy, failures)
        usual = measured.summary.gradients_per_s
        estimated |= not found.failures
        rows.append((measured.label, f"{found.share:.1%}", usual * found.share, found.failures))
    notes = ["goodput: gradients applied per second with failures ÷ without"]
    if estimated:
        notes.append(
            "0 failures simulated: they are too rare, so it is (mtbf − half a step) ÷ (mtbf + "
            "repair)"
        )
    return ResultTable(
        title=f"If a worker fails every {failures.mtbf_s:,.0f} s on average and is back after "
        f"{failures.repair_s:,.0f} s",
        columns=("policy", "goodput", "gradients/s", "failures simulated"),
        rows=tuple(rows),
        notes=tuple(notes),
    )
