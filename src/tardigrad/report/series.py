"""What figures and tables are made of: the runs of one label, one per seed."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tardigrad.core.own_code import brief
from tardigrad.recording.folder import RunFolder

METRICS = ("validation", "test", "train")
"""In this order of preference, the split by which runs are judged."""


@dataclass(frozen=True)
class Series:
    """Runs that differ in their seed alone. A diverged one has a summary that says so."""

    label: str
    runs: Sequence[Sequence[dict[str, Any]]]
    """Evaluations, per run."""
    summaries: Sequence[dict[str, Any]]
    seeds: Sequence[int] = ()
    """One per run; nothing where there is a single one."""

    @property
    def diverged(self) -> int:
        return sum(summary["status"] == "diverged" for summary in self.summaries)

    @property
    def finished(self) -> list[Sequence[dict[str, Any]]]:
        ended = zip(self.runs, self.summaries, strict=True)
        return [run for run, summary in ended if run and summary["status"] != "diverged"]

    def final(self, metric: str) -> list[float]:
        """The last value of a metric in each run that did not diverge."""
        return [run[-1][metric] for run in self.finished if metric in run[-1]]

    def final_by_seed(self, metric: str) -> dict[int, float]:
        """The last value of a metric, of runs that did not diverge."""
        each = zip(self.seeds, self.runs, self.summaries, strict=True)
        ended = {seed: run for seed, run, facts in each if run and facts["status"] != "diverged"}
        return {seed: run[-1][metric] for seed, run in ended.items() if metric in run[-1]}

    def best(self, metric: str) -> list[float]:
        """Over all evaluations of each run, the first before any update among them."""
        columns = [
            [r[metric] for r in run if metric in r and not math.isnan(r[metric])]
            for run in self.finished
        ]
        of = max if metric.endswith("accuracy") else min
        return [of(column) for column in columns if column]

    def first_below(self, metric: str, target: float) -> list[float | None]:
        """When each run first reaches the target; None where it never does."""
        return [first_below(run, metric, target) for run in self.finished]

    @property
    def delay_counts(self) -> list[int]:
        """How many applied gradients had delay 0, 1, 2, …, all runs together."""
        lists = [summary["delay_counts"] for summary in self.summaries]
        out = [0] * max(map(len, lists))
        for counts in lists:
            for delay, count in enumerate(counts):
                out[delay] += count
        return out

    @property
    def mean_delay(self) -> float:
        return self.mean("mean_delay")

    def mean(self, fact: str) -> float:
        """Of a figure in the summaries, over the runs that did not diverge, or over all where
        every one has. Folders of 0.1 do not count gradients: then there is one an update."""
        ended = [facts for facts in self.summaries if facts["status"] != "diverged"]
        instead = "updates" if fact == "gradients" else fact
        return statistics.fmean(
            facts[fact if fact in facts else instead] for facts in ended or self.summaries
        )


def first_below(run: Sequence[dict[str, Any]], metric: str, target: float) -> float | None:
    """The time of the first evaluation at which a metric has come down to the target."""
    return next((r["time_s"] for r in run if metric in r and r[metric] <= target), None)


def load_series(path: str | Path) -> list[Series]:
    """The series in a folder: one of a run, several of a comparison."""
    folder = RunFolder.open(Path(path))
    outcomes = folder.outcomes()
    if not outcomes:
        summary = folder.summary()
        if "updates" not in summary:  # a run on Ray writes them at its end
            what = {"stopped": "was stopped", "diverged": "diverged"}.get(
                summary.get("status", ""), "has not stopped yet, or was killed"
            )
            raise ValueError(
                f"{path} holds a run that {what}, and no results: "
                f"finish it ({'--resume' if folder.has_spec else 'resume=True'}), then ask for its "
                "report"
            )
        label = brief(folder.spec()["rule"]["name"]) if folder.has_spec else summary["rule"]
        return [Series(label, [folder.metrics()], [summary])]
    return gathered(outcomes)


def gathered(outcomes: Sequence[Mapping[str, Any]]) -> list[Series]:
    """Outcomes by label, in the order in which they were asked for; of folders that do not say it,
    in that of their first appearance."""
    outcomes = sorted(outcomes, key=lambda outcome: int(outcome.get("place", 0)))
    labels = dict.fromkeys(outcome["label"] for outcome in outcomes)
    out = []
    for label in labels:
        mine = [outcome for outcome in outcomes if outcome["label"] == label]
        records, facts = [o["records"] for o in mine], [o["summary"] for o in mine]
        out.append(Series(label, records, facts, [o["seed"] for o in mine]))
    return out


def meet_the_same(outcomes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether, seed by seed, all met the same schedule, batches and initial weights; folders that
    do not say so may not have."""
    met: dict[int, set[str | None]] = {}
    for outcome in outcomes:
        met.setdefault(outcome["seed"], set()).add(outcome["summary"].get("meets"))
    return all(len(found) == 1 and None not in found for found in met.values())


def share_one_task(outcomes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether runs with several seeds had one and the same task."""
    tasks = {outcome["summary"].get("meets", "").rpartition("-")[2] for outcome in outcomes}
    seeds = {outcome["seed"] for outcome in outcomes}
    return len(seeds) > 1 and len(tasks) == 1 and tasks != {""}


def metric_of(series: Sequence[Series], kind: str = "loss") -> str | None:
    """The metric that every finished run has, by preference of split; batch loss where no other."""
    ends = [run[-1] for one in series for run in one.finished]
    wanted = [f"{split}_{kind}" for split in METRICS] + [f"batch_{kind}"]
    return next((name for name in wanted if ends and all(name in end for end in ends)), None)
