"""Driving an execution to its end: evaluate on the way, save and go on, stop, tell observers."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.stop_signals import StopSignal, asked_by, interrupts_noted
from tardigrad.core.trees import not_finite
from tardigrad.core.used_code import used_code
from tardigrad.engine.execution import Execution
from tardigrad.engine.observer import Ended, Observer, Observers, Started, Tick, Watch
from tardigrad.engine.options import Checkpoints, Evaluation
from tardigrad.engine.result_files import (
    PARAMS,
    RECORD,
    SUMMARY,
    MetricsFile,
    save_result,
    schedule_facts,
    task_and_rule,
    write_summary,
)
from tardigrad.engine.resume import CHECKPOINT, restore, save, saved_updates
from tardigrad.engine.run import Diverged, Run, Say
from tardigrad.engine.stop import Stop
from tardigrad.links import that_codes
from tardigrad.scheduling import traffic
from tardigrad.scheduling.prefix import first_updates
from tardigrad.tasks import Task


def drive(
    execution: Execution,
    evaluation: Evaluation | int = 0,
    checkpoints: Checkpoints | None = None,
    watch: Watch | None = None,
    say: Say | None = None,
    stop: Stop | None = None,
    observers: Sequence[Observer] = (),
    about: Mapping[str, Any] | None = None,
) -> Run:
    """Execute to the end; the arguments are those of `execute`, `about` is for observers."""
    evaluation, checkpoints = Evaluation.of(evaluation), checkpoints or Checkpoints()
    check_splits(execution.task, evaluation)
    if stop is not None:
        clock = execution.schedule.clock
        stop.check(execution.task, evaluation, execution.total, clock)
    if checkpoints.folder is not None:
        observers = [MetricsFile(Path(checkpoints.folder)), *observers]
    return _Drive(execution, evaluation, checkpoints, stop, Observers(observers, watch), say).run(
        about
    )


class _Drive:
    """One execution, and what is asked of it beside its updates."""

    def __init__(
        self,
        execution: Execution,
        evaluation: Evaluation,
        checkpoints: Checkpoints,
        stop: Stop | None,
        observers: Observers,
        say: Say | None,
    ) -> None:
        self.execution, self.evaluation, self.checkpoints = execution, evaluation, checkpoints
        self.stop, self.observers = stop, observers
        self._path, self._code, spent_s = None, dict[str, str](), 0.0
        if checkpoints.folder is not None:
            self._path = Path(checkpoints.folder) / CHECKPOINT
            require(
                not self._path.with_name(RECORD).exists(),
                f"{checkpoints.folder} holds a run on Ray: write elsewhere",
            )
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._code = used_code(
                execution.task,
                execution.rule,
                execution.job.work,
                *that_codes(execution.job.codec),
                *execution.decided_by,
            )
        if self._path is not None:
            held = [name for name in (CHECKPOINT, PARAMS) if self._path.with_name(name).exists()]
            require(
                checkpoints.resume or not held,
                f"{checkpoints.folder} holds a run: go on with it by resume=True, or write "
                "elsewhere",
            )
            if CHECKPOINT in held:
                spent_s = restore(execution, self._path, self._code, say)
                self._forget_the_last_end()
            else:  # what is told there is of a run that ended before it was saved
                self._path.with_name(SUMMARY).unlink(missing_ok=True)
        self._began = time.perf_counter() - spent_s

    def run(self, about: Mapping[str, Any] | None) -> Run:
        execution, observers = self.execution, self.observers
        if observers.each:
            schedule = execution.schedule if execution.schedule.groups else None
            told = {**execution.schedule.about, "rule": repr(execution.rule)}
            observers.started(
                Started(
                    execution.total,
                    execution.updates,
                    list(execution.history.records),
                    schedule,
                    told if about is None else about,
                )
            )
        try:
            with interrupts_noted(self._path is not None) as interrupt:
                end = self._go(interrupt)
        except BaseException as error:
            self._keep_what_there_is(error)
            observers.ended(how_it_failed(error, execution.updates))
            raise
        made = execution.run(end)
        if self._path is not None:
            save_result(self._path.parent, made, time.perf_counter() - self._began)
        observers.ended(end)
        return made

    def _keep_what_there_is(self, error: BaseException) -> None:
        """How a run in a folder stopped."""
        execution = self.execution
        if self._path is None or not execution.schedule.groups:
            return
        if isinstance(error, Diverged | KeyboardInterrupt):
            status = "diverged" if isinstance(error, Diverged) else "stopped"
            saved = saved_updates(self._path.parent)
            told = {"status": status, "why": str(error), "saved_updates": saved}
            # The fast engine finds only after a batch what went wrong in it.
            made = error.update if isinstance(error, Diverged) else execution.updates
            facts = schedule_facts(first_updates(execution.schedule, made))
            facts |= task_and_rule(execution.task, execution.rule)
            write_summary(self._path.parent, facts | told)

    def _go(self, interrupt: StopSignal) -> Ended:
        execution, every, saves = self.execution, self.evaluation.every, self.checkpoints.every
        stops = [n for n in (every, saves) if n]
        end = self._end_by_clock()
        while True:
            updates = execution.updates
            if execution.finished:
                end = Ended.all_made(updates)
            if every and (end or updates % every == 0):
                end = self._evaluate() or end
            if end or (saves and updates and updates % saves == 0):
                self._save()
            if end is not None:
                return end
            if interrupt.asked:
                if updates:
                    self._save()
                raise KeyboardInterrupt(interrupt.asked)
            execution.advance_to(self._next(stops))
            check_finite(execution)  # before it is saved: the last good checkpoint must stay
            if self.observers.any:
                loss = execution.history.loss[-1]
                self.observers.updated(Tick(execution.updates, execution.total, loss))
            end = self._end_by_clock()

    def _next(self, stops: Sequence[int]) -> int:
        """How far to go before anything is to be done."""
        execution = self.execution
        updates = execution.updates
        until = min([execution.total, *(updates - updates % n + n for n in stops)])
        if self.stop is not None and self.stop.virtual_s is not None:
            until = min(until, execution.updates_at_time(self.stop.virtual_s))
        return max(until, updates + 1)

    def _end_by_clock(self) -> Ended | None:
        if self.stop is None:
            return None
        wall_s = time.perf_counter() - self._began
        return self.stop.by_clock(wall_s, self.execution.time_s, self.execution.updates)

    def _evaluate(self) -> Ended | None:
        execution = self.execution
        wall_s = time.perf_counter() - self._began
        if record_evaluation(execution, self.evaluation.splits, wall_s):
            self.observers.evaluated(execution.history.records[-1])
        if self.stop is None:
            return None
        return self.stop.judged(execution.history.records, execution.task, self.evaluation)

    def _save(self) -> None:
        if self._path is None:
            return
        save(self.execution, self._path, self._code, time.perf_counter() - self._began)
        self.observers.happened(f"saved after update {self.execution.updates:,}")

    def _forget_the_last_end(self) -> None:
        """What was evaluated only because a run ended there is not part of one that goes on."""
        records, every = self.execution.history.records, self.evaluation.every
        if not records or not every or self.execution.finished:
            return
        last = int(records[-1]["update"])
        if last == self.execution.updates and last % every:
            records.pop()


def how_it_failed(error: BaseException, updates: int) -> Ended:
    """For observers: a run that ended by an error."""
    if isinstance(error, Diverged):
        return Ended("diverged", str(error), error.update)
    if isinstance(error, KeyboardInterrupt):
        return Ended("interrupted", f"interrupted by {asked_by(error)}", updates)
    return Ended("error", f"{type(error).__name__}: {error}", updates)


def record_evaluation(execution: Execution, splits: Sequence[str], wall_s: float) -> bool:
    """Add a record for this update, unless a resumed run has it already; whether it did."""
    schedule, records = execution.schedule, execution.history.records
    updates = execution.updates
    if records and records[-1]["update"] == updates:
        return False
    done = execution.position
    recent = execution.history.loss[int(records[-1]["update"]) if records else 0 :]
    record: dict[str, float] = {
        "update": updates,
        "time_s": float(schedule.group_time_s[done - 1]) if done else 0.0,
        "wall_s": wall_s,
        "samples": execution.samples,
    }
    if execution.task.epoch_size:
        record["epoch"] = record["samples"] / execution.task.epoch_size
    if recent:
        record["batch_loss"] = sum(recent) / len(recent)
    counted = traffic(schedule, execution.shard_bytes, done, execution.push_bytes)
    record |= counted.record()
    for split in splits:
        measured = execution.task.evaluate(execution.params, execution.buffers, split)
        record |= {f"{split}_{name}": value for name, value in measured.items()}
        if execution.average is not None:
            averaged = execution.task.evaluate(execution.average, execution.buffers, split)
            record |= {f"{split}_{name}_ema": value for name, value in averaged.items()}
    records.append(record)
    return True


def check_splits(task: Task, evaluation: Evaluation) -> None:
    """Refuse evaluations that would measure nothing.

    A task that has no splits at all, a gradient function without `evaluate`, is no mistake: its
    records hold the batch loss, time and traffic.
    """
    for split in evaluation.splits if evaluation.every else ():
        require(
            not task.splits or split in task.splits,
            f"the run is to evaluate on {split!r}, but the task has only "
            f"{' and '.join(map(repr, task.splits))}: use splits={list(task.splits)}, splits=[] "
            "for the batch loss alone, or 0 updates between evaluations for none",
        )


def check_finite(execution: Execution) -> None:
    """What no loss and no gradient told: those may be finite, or the task gives no loss."""
    wrong = not_finite(execution.params)
    if wrong is not None:
        schedule = execution.schedule
        worker = int(schedule.worker[schedule.group(execution.position - 1)[0]])
        raise Diverged(execution.updates, worker, wrong, "a parameter")
