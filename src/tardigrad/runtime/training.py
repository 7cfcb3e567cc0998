"""`train`: the same task, rule and policy as `simulate`, on real processes and in real time."""

import json
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

from tardigrad.clusters import StepTimes, TimedCluster
from tardigrad.core.checks import count, require
from tardigrad.core.renamed_arguments import Grouped, grouped_arguments
from tardigrad.core.trees import not_finite
from tardigrad.engine import Checkpoints, Diverged, Evaluation, History, Run
from tardigrad.engine.execute import ShardBy, check_splits, divide
from tardigrad.policies import Async, Policy
from tardigrad.rules import Rule
from tardigrad.runtime.crew import Crew
from tardigrad.runtime.driver import Driver, Live
from tardigrad.runtime.facts import check_facts, facts_of, policy_facts
from tardigrad.runtime.log import read_log
from tardigrad.runtime.membership import complete_membership
from tardigrad.runtime.merge import merge
from tardigrad.runtime.options import Processes, Scenario
from tardigrad.runtime.ray_cluster import connected
from tardigrad.runtime.recovery import Recovered
from tardigrad.runtime.server import Snapshot
from tardigrad.runtime.setup import Setup
from tardigrad.scheduling.size import check_size
from tardigrad.tasks import Task

RECORD = "record.json"
RECORDS = "evaluations.jsonl"
FORMAT = "tardigrad-ray-1"


OLD_NAMES = grouped_arguments(
    evaluation=Grouped(Evaluation, {"evaluate_every": "every", "splits": "splits"}),
    checkpoints=Grouped(
        Checkpoints, {"folder": "folder", "cut_every": "every", "resume": "resume"}
    ),
    processes=Grouped(Processes, {field.name: field.name for field in fields(Processes)}),
    scenario=Grouped(Scenario, {field.name: field.name for field in fields(Scenario)}),
)


@OLD_NAMES
def train(
    task: Task,
    rule: Rule,
    policy: Policy | None = None,
    workers: int = 2,
    shards: int = 1,
    updates: int = 1000,
    *,
    seed: int = 0,
    shard_by: ShardBy = "slice",
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    processes: Processes | None = None,
    scenario: Scenario | None = None,
    watch: Callable[[Live], None] | None = None,
) -> Run:
    """Train on Ray, and record the schedule that happened.

    Args:
        evaluation: what is measured on the way; a number is how many updates lie between two
            evaluations.
        checkpoints: where logs, checkpoints and the record go, and whether to go on with the run
            that is there, whose driver was stopped or killed; None: to a temporary folder, removed
            at the end.
        processes: where they are and what they share; None: all on this machine.
        scenario: what is made to happen to them: step times, kills, workers that come and go.
        watch: called several times a second.
    """
    policy, evaluation = policy or Async(), Evaluation.of(evaluation)
    checkpoints = checkpoints or Checkpoints()
    processes, scenario = processes or Processes(), scenario or Scenario()
    for name, value in (("workers", workers), ("shards", shards), ("updates", updates)):
        count(name, value)
    check_measured(task, evaluation)
    impose, folder, resume = scenario.impose, checkpoints.folder, checkpoints.resume
    require(impose is None or impose.workers >= workers, "impose has fewer workers than the run")
    policy.check(workers, shards)
    check_size(workers, updates, shards, workers + updates, closed=False)
    sharding = divide(task, rule, shards, shard_by)
    place = Path(tempfile.mkdtemp(prefix="tardigrad-")) if folder is None else Path(folder)
    plain = {
        "format": FORMAT,
        "workers": workers,
        "shards": shards,
        "updates": updates,
        "shard_by": shard_by,
        "policy": _about(policy),
        "rule": repr(rule),
        "seed": seed,
        "facts": facts_of(task, rule, processes.threads) | policy_facts(policy),
    }
    try:
        began_s = _begin(place, plain, resume)
        setup = Setup(
            run=secrets.randbits(62),
            task=task,
            rule=rule,
            policy=policy,
            sharding=sharding,
            workers=workers,
            updates=updates,
            folder=place.absolute(),
            began_s=began_s,
            threads=processes.threads,
            shared_memory=processes.shared_memory,
            times=_times(impose, seed),
            faults=tuple(scenario.faults),
            snapshot_every=evaluation.every,
            digest_every=processes.digest_every,
            sync_log=processes.sync_log,
        )
        evaluator = Evaluator(setup, evaluation.splits, resume) if evaluation.every else None
        with _crew(processes, workers + shards) as crew:
            driver = Driver(
                setup,
                crew,
                checkpoints.every,
                scenario.changes,
                evaluator.take if evaluator else None,
                watch,
                processes.resources,
            )
            try:
                if resume:
                    complete_membership(setup)
                driver.start(Recovered(setup) if resume else None)
                ended = driver.run()
            except BaseException:
                driver.abandon()
                raise
        stories = [read_log(setup.log_path(shard)) for shard in range(shards)]
        schedule, losses, origin_s = merge(stories, workers)
        schedule.about.update(policy=_about(policy), cluster={"name": "ray"}, seed=seed)
        plain["digests"] = [
            [shard, version, digest]
            for shard, story in enumerate(stories)
            for version, digest in [*story.digests, (updates, ended.digests[shard])]
        ]
        plain["recoveries"] = driver.recoveries
        _write(place / RECORD, {**plain, "began_s": began_s, "finished": True})
        history = History(evaluator.finish(losses, origin_s) if evaluator else [], losses)
        wrong = not_finite(ended.theta)
        if wrong is not None:
            worker = int(schedule.worker[schedule.group_rows[-1]])
            raise Diverged(updates, worker, wrong, "a parameter")
        return Run(ended.theta, history, schedule, ended.buffers, ended.average)
    finally:
        if folder is None:
            shutil.rmtree(place, ignore_errors=True)


def check_measured(task: Task, evaluation: Evaluation) -> None:
    """Refuse what cannot be measured on Ray."""
    require(
        not evaluation.measures,
        f"measures = {list(evaluation.measures)} need every view at hand, which no process of a "
        "cluster has: leave them out",
    )
    check_splits(task, evaluation)


class Evaluator:
    """Evaluates snapshots of the shards in the driver's process, while workers go on."""

    def __init__(self, setup: Setup, splits: Sequence[str], resume: bool) -> None:
        self.setup = setup
        self.splits = splits
        self._path = setup.folder / RECORDS
        self.records: list[dict[str, float]] = []
        if resume and self._path.exists():
            lines = self._path.read_text(encoding="utf-8").splitlines()
            self.records = [json.loads(line) for line in lines]
        self._known = {record["update"] for record in self.records}

    def take(self, parts: list[Snapshot]) -> None:
        """One version of all shards."""
        first, task = parts[0], self.setup.task
        if first.version in self._known:
            return
        self._known.add(first.version)
        record: dict[str, float] = {
            "update": first.version,
            "time_s": max(part.time_s for part in parts),
            "wall_s": time.time() - self.setup.began_s,
            "samples": first.samples,
        }
        if task.epoch_size:
            record["epoch"] = first.samples / task.epoch_size
        params = torch.cat([part.theta for part in parts])
        averages = [part.average for part in parts if part.average is not None]
        for split in self.splits:
            measured = task.evaluate(params, first.buffers, split)
            record |= {f"{split}_{name}": value for name, value in measured.items()}
            if len(averages) == len(parts):
                averaged = task.evaluate(torch.cat(averages), first.buffers, split)
                record |= {f"{split}_{name}_ema": value for name, value in averaged.items()}
        self.records.append(record)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def finish(self, losses: list[float], origin_s: float) -> list[dict[str, float]]:
        """The records in order, in the schedule's time, each with the mean batch loss since the
        one before."""
        records = sorted(self.records, key=lambda record: record["update"])
        before = 0
        for record in records:
            record["time_s"] = max(0.0, record["time_s"] - origin_s)
            recent = losses[before : int(record["update"])]
            if recent:
                record["batch_loss"] = sum(recent) / len(recent)
            before = int(record["update"])
        return records


def _begin(folder: Path, plain: dict[str, Any], resume: bool) -> float:
    """Write what the run starts from, or check that it is the run to go on with; its time 0."""
    path = folder / RECORD
    if not resume:
        require(
            not path.exists(),
            f"{folder} already holds a run on Ray: go on with it (resume), or write elsewhere",
        )
        folder.mkdir(parents=True, exist_ok=True)
        began_s = time.time()
        _write(path, {**plain, "began_s": began_s, "finished": False})
        return began_s
    recorded = read_record(folder)
    require(not recorded["finished"], f"the run in {folder} has finished: there is nothing to do")
    given = json.loads(json.dumps(plain))
    different = [n for n in plain if n != "facts" and recorded.get(n) != given[n]]
    by_0_1 = not isinstance(recorded["facts"].get("code"), dict)  # it wrote rules in other words
    require(
        by_0_1 or not different,
        f"{folder} holds a run of another spec, so it cannot be resumed with this one: "
        f"{', '.join(different)} {'differs' if len(different) == 1 else 'differ'}",
    )
    check_facts(
        recorded["facts"],
        given["facts"],
        "Go on with it where these are the same, or start in a new folder",
    )
    return float(recorded["began_s"])


def read_record(folder: Path) -> dict[str, Any]:
    path = folder / RECORD
    require(path.is_file(), f"{folder} holds no run on Ray (it has no {RECORD})")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    require(record.get("format") == FORMAT, f"{path} is not a {FORMAT} file")
    return record


def _write(path: Path, data: dict[str, Any]) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)


def _times(impose: TimedCluster | None, seed: int) -> StepTimes | None:
    return None if impose is None else impose.realise(seed)


@contextmanager
def _crew(processes: Processes, actors: int) -> Iterator[Crew]:
    """The given one, or one for this run alone."""
    if processes.crew is not None:
        yield processes.crew
        return
    with connected(processes.address, actors) as cpus, Crew(cpus) as own:
        yield own


def _about(part: Any) -> dict[str, Any]:
    described = {"name": type(part).__name__}
    if is_dataclass(part) and not isinstance(part, type):
        described |= {k: v for k, v in asdict(part).items() if not callable(v)}
    return described
