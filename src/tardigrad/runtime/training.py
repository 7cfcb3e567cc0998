"""`train`: the same task, rule and policy as `simulate`, on real processes and in real time."""

import fcntl
import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch

from tardigrad.core.checks import count, require
from tardigrad.core.layout import Layout
from tardigrad.core.renamed_arguments import Grouped, grouped_arguments
from tardigrad.core.trees import not_finite
from tardigrad.engine import Checkpoints, Diverged, Evaluation, History, Run
from tardigrad.engine.drive import check_splits, how_it_failed
from tardigrad.engine.execute import ShardBy, check_weights, check_work, divide, work_of
from tardigrad.engine.given import check_learned, check_parts
from tardigrad.engine.lockstep import check_deviation
from tardigrad.engine.observer import Observer, Observers
from tardigrad.engine.result_files import SUMMARY, MetricsFile, save_result, write_summary
from tardigrad.engine.resume import CHECKPOINT
from tardigrad.engine.run import Provenance, Say
from tardigrad.engine.stop import Stop
from tardigrad.links import Full, Link
from tardigrad.policies import Async, Policy
from tardigrad.protocol.coordinator import Coordinator
from tardigrad.recording.disk import LATE, FolderDisk, file_system
from tardigrad.recording.epochs import EXTEND, FINISH, Epochs, Length, finished_with
from tardigrad.recording.facts import facts_of, policy_facts
from tardigrad.recording.merge import merge
from tardigrad.recording.record import (
    FORMAT,
    GoingOn,
    begin_record,
    resume_record,
    write_record,
)
from tardigrad.recording.setup import RunSetup
from tardigrad.recording.shard_logs import ShardStory, read_story
from tardigrad.rules import Rule
from tardigrad.runtime.computers import Computers
from tardigrad.runtime.driver import Driver, Live
from tardigrad.runtime.evaluator import Evaluator
from tardigrad.runtime.final_run import FinalRun
from tardigrad.runtime.onlooker import Onlooker
from tardigrad.runtime.options import Processes, Scenario
from tardigrad.runtime.ray_setup import RaySetup
from tardigrad.runtime.run_actors import actors_of, check_room
from tardigrad.runtime.sending import TaskPacker, check_sendable, own_code_sent
from tardigrad.scheduling import traffic
from tardigrad.scheduling.make import about_part, about_work, check_link
from tardigrad.scheduling.size import check_size
from tardigrad.tasks import Task
from tardigrad.tasks.hosted import hosted
from tardigrad.work import AnyWork, OneGradient

_log = logging.getLogger("tardigrad")

LOCK = "driver.lock"

OLD_NAMES = grouped_arguments(
    evaluation=Grouped(Evaluation, {"evaluate_every": "every", "splits": "splits"}),
    checkpoints=Grouped(
        Checkpoints, {"folder": "folder", "cut_every": "every", "resume": "resume"}
    ),
    processes=Grouped(
        Processes,
        {name: name for name in ("address", "resources", "threads", "shared_memory")}
        | {"crew": "pool", "digest_every": "digest_every", "sync_log": "sync_log"},
    ),
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
    link: Link | None = None,
    work: AnyWork | None = None,
    seed: int = 0,
    shard_by: ShardBy = "slice",
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    processes: Processes | None = None,
    scenario: Scenario | None = None,
    stop: Stop | None = None,
    observers: Sequence[Observer] = (),
    about: Mapping[str, Any] | None = None,
    watch: Callable[[Live], None] | None = None,
    say: Say | None = None,
) -> Run:
    """Train on Ray, and record the schedule that happened.

    Args:
        link: what crosses between workers and shards; None: everything. Workers decide on pushes
            and shards on parameters, as in the simulation; a worker's next process decides anew,
            beginning with a push that crosses.
        work: what workers do between a pull and a push; None: one gradient.
        evaluation: what is measured on the way; a number is how many updates lie between two
            evaluations.
        checkpoints: where logs, checkpoints and the record go, and whether to go on with the run
            that is there, whose driver was stopped or killed; None: to a temporary folder, removed
            at the end.
        processes: where they are and what they share; None: all on this machine.
        scenario: what is made to happen to them: step times, kills, workers that come and go.
        stop: what ends the run before all updates are made.
        observers: told how the run goes; `about` is what they are told of it at its start.
        watch: called several times a second.
        say: told, in a line each, which process has died and was replaced, and what takes long;
            None: written to the log `tardigrad`.
    """
    check_learned(task, rule)
    check_parts(policy=policy, link=link, stop=stop, checkpoints=checkpoints)
    policy, link, evaluation = policy or Async(), link or Full(), Evaluation.of(evaluation)
    work = work_of(work, rule)
    checkpoints = checkpoints or Checkpoints()
    processes, scenario = processes or Processes(), scenario or Scenario()
    for name, value in (("workers", workers), ("shards", shards), ("updates", updates)):
        count(name, value)
    check_measured(task, evaluation)
    if stop is not None:
        stop.check(task, evaluation, updates, "measured")
    impose, folder, resume = scenario.impose, checkpoints.folder, checkpoints.resume
    require(impose is None or impose.workers >= workers, "impose has fewer workers than the run")
    policy.check(workers, shards)
    check_link(policy, link)
    check_weights(rule, policy)
    check_deviation(rule, link, rule.start(torch.zeros(1), Layout.flat(1)))
    check_work(work, task, link)
    check_size(workers, updates, shards, workers + updates, closed=False)
    check_sendable(task=task, rule=rule, policy=policy, link=link, work=work, cluster=impose)
    check_room(task, workers, processes)
    own, task = task, hosted(task, TaskPacker())
    run = RunSetup(
        task,
        rule,
        policy,
        divide(task, rule, shards, shard_by),
        workers,
        updates,
        processes.threads,
        evaluation.every,
        processes.digest_every,
        processes.sync_log,
        link,
        seed,
        work,
    )
    plain = {
        "format": FORMAT,
        "workers": workers,
        "shards": shards,
        "updates": updates,
        "shard_by": shard_by,
        "policy": about_part(policy),
        "link": about_part(link),
        "rule": repr(rule),
        "seed": seed,
        "facts": facts_of(own, rule, processes.threads, work, link.codec)
        | policy_facts(policy, link),
    }
    if work != OneGradient():  # older records do not say it
        plain["work"] = repr(work)
    going_on = GoingOn(0.0, Length(updates, updates), False)
    if resume:
        going_on = resume_record(Path(str(folder)), plain)  # refused before anything is written
        require(
            not going_on.extends or shards == 1 or policy.extends,
            f"{type(policy).__name__} lets workers start before all {shards} shards have answered, "
            "and such a run cannot be extended on Ray: a shard that had ended drops what workers "
            "were ahead with, and would wait for it. Start a longer one in a new folder",
        )
    require(
        resume or folder is None or not (Path(folder) / CHECKPOINT).exists(),
        f"{folder} holds a simulated run: write elsewhere",
    )
    with _folder(folder) as place, _early_end_kept(folder):
        check_seen_by_others(place, processes.sync_log)
        if resume:
            going_on = resume_record(place, plain)
            began_s = going_on.began_s
            run = replace(run, first_updates=going_on.length.first)
        else:
            began_s = time.time()
            begin_record(place, plain, began_s)
        evaluator = None
        if evaluation.every:
            evaluator = Evaluator(task, place, began_s, evaluation.splits)
        disk = FolderDisk(place)
        coordinator = Coordinator(
            shards,
            workers,
            updates,
            checkpoints.every,
            scenario.changes,
            keeps_unsent=run.keeps_unsent,
            keeps_state=run.keeps_state,
            watches=watch is not None,
            patience=processes.patience,
        )
        looking = Observers(observers if folder is None else [MetricsFile(place), *observers])
        onlooker = Onlooker(coordinator, evaluator, evaluation, stop, looking, watch, say, began_s)
        epochs = Epochs(disk, f"process {os.getpid()} on {socket.gethostname()}", going_on.length)
        if going_on.extends:
            _extend(place, disk, epochs, {**plain, "began_s": began_s, "finished": False})
        finished = finished_with(disk)
        computers = Computers(place, onlooker.tell)
        logs: dict[int, int] = {}
        if finished is not None:  # by a driver that did not live to write the record
            final = FinalRun.load(place, finished, updates)
        else:
            setup = RaySetup(
                run,
                place,
                secrets.token_bytes(32),
                began_s,
                processes.shared_memory,
                None if impose is None else impose.realise(seed),
                tuple(scenario.faults),
            )
            onlooker.begin(about or {n: plain[n] for n in ("policy", "link", "rule", "seed")})
            onlooker.tell(f"starting {workers + shards} processes on Ray")
            with (
                own_code_sent(),
                told_how_it_ended(looking),
                actors_of(processes, own, workers, shards, onlooker.tell) as (pool, rooms),
            ):
                driver = Driver(
                    setup,
                    coordinator,
                    pool,
                    disk,
                    epochs,
                    rooms,
                    computers,
                    onlooker.take if evaluator else None,
                    onlooker.show,
                    say or _log.warning,
                )
                final = FinalRun.of(driver.run(), onlooker.ended)
                final.save(place, epochs.last)
                logs = driver.logs_begun()
                driver.finish()
            epochs.take(FINISH)
        stories = [read_story(disk, shard, logs.get(shard, 0)) for shard in range(shards)]
        schedule, losses, origin_s = merge(stories, workers, run.gated, work.batches)
        about = {"policy": about_part(policy), "link": about_part(link), "cluster": {"name": "ray"}}
        schedule.about.update(about, seed=seed, **about_work(work.batches))
        plain["digests"] = _digests(stories, final)
        plain["ended_by"] = final.ended.by
        plain["recoveries"] = coordinator.recoveries
        plain["computers"] = computers.seen
        write_record(place, {**plain, "began_s": began_s, "finished": True})
        history = History(evaluator.finish(losses, origin_s) if evaluator else [], losses)
        wrong = not_finite(final.theta)
        if wrong is not None:
            worker = int(schedule.worker[schedule.group_rows[-1]])
            raise Diverged(schedule.updates, worker, wrong, "a parameter")
        done = Run(
            final.theta,
            history,
            schedule,
            final.buffers,
            final.average,
            traffic(schedule, run.shard_bytes, push_bytes=run.push_bytes),
            final.ended,
            own,
            rule,
            Provenance("ray", shard_by, processes.threads, computers=tuple(computers.seen)),
            work,
            link.codec,
        )
        if folder is not None:
            # Since it began, by the clock that went on while it was stopped.
            save_result(place, done, time.time() - began_s, imposed=impose is not None)
        looking.ended(final.ended)
        return done


def _extend(place: Path, disk: FolderDisk, epochs: Epochs, record: dict[str, Any]) -> None:
    """Let a run go on behind its end. From the first step on it is a run that has not finished,
    whatever else its files say."""
    finished = finished_with(disk)
    if finished is not None:
        wrong = not_finite(FinalRun.load(place, finished, record["updates"]).theta)
        require(
            wrong is None,
            f"the run in {place} has diverged (a parameter is {wrong}): there is nothing to go on "
            "from; start another in a new folder",
        )
    epochs.take(EXTEND)
    write_record(place, record)
    (place / SUMMARY).unlink(missing_ok=True)


@contextmanager
def _early_end_kept(folder: str | Path | None) -> Iterator[None]:
    """How a run in a folder stopped before its end."""
    try:
        yield
    except (Diverged, KeyboardInterrupt) as early:
        if folder is not None:
            status = "diverged" if isinstance(early, Diverged) else "stopped"
            write_summary(Path(folder), {"status": status, "why": str(early), "on": "ray"})
        raise


@contextmanager
def told_how_it_ended(observers: Observers) -> Iterator[None]:
    """Observers hear of an error that ends the block."""
    try:
        yield
    except BaseException as error:
        observers.ended(how_it_failed(error, 0))
        raise


def check_measured(task: Task, evaluation: Evaluation) -> None:
    """Refuse what cannot be measured on Ray."""
    require(
        not evaluation.measures,
        f"measures = {list(evaluation.measures)} need every view at hand, which no process of a "
        "cluster has: leave them out",
    )
    check_splits(task, evaluation)


def check_seen_by_others(folder: Path, sync_log: bool) -> None:
    """Refuse a log that other machines would see late.

    What one machine has written to a network's file system, another sees only once it is synced, so
    a shard that is brought back elsewhere would miss what had been acknowledged.
    """
    kind = file_system(folder)
    require(
        sync_log or not kind.startswith(LATE),
        f"{folder} is on {kind}, where other machines see a log only once it is synced: set "
        "sync_log = true in the spec (Processes(sync_log=True)), or use a folder that is seen at "
        "once",
    )


def _digests(stories: Sequence[ShardStory], final: FinalRun) -> list[list[Any]]:
    return [
        [shard, version, digest]
        for shard, story in enumerate(stories)
        for version, digest in [
            *((one.version, one.digest) for one in story.digests),
            (final.versions[shard], final.digests[shard]),
        ]
    ]


@contextmanager
def _folder(folder: str | Path | None) -> Iterator[Path]:
    """The run's folder, which belongs to this driver alone as long as it runs."""
    if folder is None:
        place = Path(tempfile.mkdtemp(prefix="tardigrad-"))
        try:
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return
    place = Path(folder).absolute()
    place.mkdir(parents=True, exist_ok=True)
    with open(place / LOCK, "a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise ValueError(
                f"{place} is being written to by another driver ({lock.read().strip()}): wait for "
                "it, or stop it, or write elsewhere"
            ) from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield place
