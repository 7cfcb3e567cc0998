"""Sweeps: one experiment at every combination of some values, such as learning rates and seeds.

Points that agree in policy, cluster, link, updates, shards and seed are executed on one schedule,
made once. Each point is a run of its own with one thread of torch, so its bits are those of a
single run with one thread, whatever stands beside it and however many processes there are.

**Choice**: on a CPU, points are spread over processes. Stacking them as one more batched dimension
gains nothing there: the workers' gradients are batched already, and a core that is busy with one
point is as busy with two. On a GPU, points that share a schedule and a model and are left to the
fast engine are stacked (`engine.fast.stack`), as many as its memory holds: they may differ in the
rule and its coefficients and in `task.seed`. Other points follow one another. A stacked point is
its single run but for the last bits of its gradients, which depend on the size of a batch.
"""

import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import torch

from tardigrad.core.checks import count, require
from tardigrad.core.own_code import brief
from tardigrad.engine.memory import GIB, check_budget
from tardigrad.engine.run import Say
from tardigrad.experiment.comparison import Outcome, control_of, learned_of, outcome_of, split
from tardigrad.experiment.spec import Spec, Table, changed, parsed, with_value
from tardigrad.experiment.stacked import alike, may_stack, outcomes_of_stack, stacks
from tardigrad.experiment.structure import Plain
from tardigrad.report import value_text
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task

EXAMPLE = "rule.lr=[0.01,0.02]"


class Axis(NamedTuple):
    """A dotted key of the spec and the values it takes."""

    key: str
    values: list[Plain]


class Point(NamedTuple):
    """One combination of values, and the experiment it makes of the spec."""

    values: Mapping[str, Plain]
    spec: Spec

    @property
    def label(self) -> str:
        """All but the seed: points that differ in that alone are repetitions."""
        named = [f"{k}={value_text(v)}" for k, v in self.values.items() if k != "seed"]
        return ", ".join(named) or brief(str(self.spec.rule["name"]))


def points(data: Table, words: Sequence[str]) -> list[Point]:
    """The points that words such as "rule.lr=[0.01,0.02]" make of a spec's plain data.

    A key with a list is an axis, one with a single value a change to every point. Where the key
    itself holds a list, an axis is a list of lists: rule.betas=[[0.8,0.9],[0.9,0.99]].
    """
    axes = [axis for axis in map(_axis, words) if axis is not None]
    require(
        bool(axes),
        f"there is nothing to sweep: give some key a list of values, such as {EXAMPLE}; "
        "a single experiment is `tardigrad run`",
    )
    keys = [axis.key for axis in axes]
    for key in keys:
        require(keys.count(key) == 1, f"{key} is swept twice: put all its values into one list")
    base = changed(data, [word for word in words if _axis(word) is None])
    made: dict[str, Point] = {}
    for combination in itertools.product(*(axis.values for axis in axes)):
        values = dict(zip(keys, combination, strict=True))
        point = Point(values, _spec(base, values))
        text = point.spec.toml()
        if text in made:
            raise ValueError(
                f"the points {_says(made[text].values)} and {_says(values)} are the same "
                "experiment: an axis may not undo another"
            )
        made[text] = point
    return list(made.values())


def _axis(word: str) -> Axis | None:
    """None for a change to every point."""
    key, _, text = (part.strip() for part in word.partition("="))
    value = parsed(text)
    if isinstance(value, str) and text.startswith("[") and text.endswith("]"):
        # Names without quotes, which the shell may have taken away.
        value = [parsed(part) for part in split(text[1:-1], ",")]
    if not isinstance(value, list):
        mistaken = isinstance(value, str) and ("," in value or value[:1] == "[" or not value)
        require(not mistaken, f"{word!r} is not a list of values: write {key}=[…], as in {EXAMPLE}")
        return None
    require(bool(value), f"{key} has an empty list: give it values, as in {EXAMPLE}")
    for one in value:
        require(value.count(one) == 1, f"{key} has the value {value_text(one)} twice")
    return Axis(key, value)


def _spec(base: Table, values: Mapping[str, Plain]) -> Spec:
    data = dict(base)
    for key, value in values.items():
        data = with_value(data, key, value)
    spec = Spec.of(data)
    require(
        spec.evaluate_every != 0,
        "a sweep compares evaluations, but evaluate_every = 0 makes none: leave it out, or give "
        "the number of updates between them",
    )
    return spec


def _says(values: Mapping[str, Plain]) -> str:
    return " ".join(f"{key}={value_text(value)}" for key, value in values.items())


def default_jobs(swept: Sequence[Point]) -> int:
    """As many processes as cores; one where a task is not on the CPU, which they would share."""
    if any(point.spec.task.get("device", "cpu") != "cpu" for point in swept):
        return 1
    return min(len(swept), os.cpu_count() or 1)


def sweep(
    swept: Sequence[Point], jobs: int | None = None, say: Say | None = None
) -> Generator[Outcome, None, None]:
    """Execute every point, `jobs` at a time; outcomes as they come.

    More than one job means processes that import the main module again, so a script that calls
    this needs `if __name__ == "__main__":`. Processes divide the machine's free memory evenly
    where the spec has no budget of its own. `say` is told, a line at a time, how they are executed.
    """
    if jobs is not None:
        count("jobs", jobs)
    jobs = min(jobs or default_jobs(swept), len(swept))
    say = say or (lambda line: None)
    if jobs > 1:
        say(f"{len(swept)} points, {jobs} at a time, each in a process of its own")
        return _in_processes(swept, jobs)
    if not any(may_stack(point.spec) for point in swept):
        say(f"{len(swept)} points one after another")
    return _here(swept, say)


def _scheduled(swept: Sequence[Point]) -> Iterator[tuple[list[Point], Schedule | None]]:
    """The points that share a schedule, and that schedule; so it can go before the next is made."""
    for together in _together(swept, control_of):
        yield together, together[0].spec.make_schedule()


def _together(swept: Sequence[Point], key: Callable[[Spec], str]) -> list[list[Point]]:
    """The points by what their specs agree in."""
    out: dict[str, list[Point]] = {}
    for point in swept:
        out.setdefault(key(point.spec), []).append(point)
    return list(out.values())


def _here(swept: Sequence[Point], say: Say) -> Generator[Outcome, None, None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for sharing, schedule in _scheduled(swept):
            for together in _together(sharing, alike):
                yield from _stacked(together, schedule, say)
    finally:
        torch.set_num_threads(threads)
        _last_task.clear()


def _stacked(
    together: list[Point], schedule: Schedule | None, say: Say
) -> Generator[Outcome, None, None]:
    """Points that agree in all but rule and seed of the task: as stacks, or one after another."""
    waiting = together
    if schedule is not None and len(together) > 1 and may_stack(together[0].spec):
        try:
            for specs, jobs in stacks([p.spec for p in together], schedule, say):
                labels = [point.label for point in waiting[: len(specs)]]
                found = outcomes_of_stack(labels, specs, jobs)
                now, waiting = waiting[: len(specs)], waiting[len(specs) :]
                for point, outcome in zip(now, found, strict=True):
                    yield outcome._replace(point=dict(point.values))
        except (ValueError, torch.OutOfMemoryError) as why:
            # What is wrong with a point itself is told again, with its name, when its turn comes.
            say(f"{len(waiting)} points one after another: {str(why).splitlines()[0]}")
    for point in waiting:
        yield _execute(point, schedule)


def _in_processes(swept: Sequence[Point], jobs: int) -> Generator[Outcome, None, None]:
    share = check_budget(None, torch.device("cpu")) / GIB / jobs
    waiting = ((p, schedule) for together, schedule in _scheduled(swept) for p in together)
    running: set[Future[Outcome]] = set()
    with _processes(jobs) as pool:
        while True:
            for point, schedule in itertools.islice(waiting, jobs - len(running)):
                if point.spec.memory_gib is None:
                    point = point._replace(spec=replace(point.spec, memory_gib=share))
                running.add(pool.submit(_execute, point, schedule))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


@contextmanager
def _processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Fresh processes that end with the block; at once where it ends by an error or Ctrl-C."""
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, initializer=_start)
    try:
        yield pool
    except BaseException:
        # They write no files, so there is nothing to wait for.
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start() -> None:
    """In a new process: one thread, Ctrl-C left to the parent, no life without it."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _execute(point: Point, schedule: Schedule | None) -> Outcome:
    try:
        task = _task(point.spec)
        outcome = outcome_of(point.label, point.spec, schedule, task, None)
    except ValueError as error:
        raise ValueError(f"at {_says(point.values)}: {error}") from error
    return outcome._replace(point=dict(point.values))


def _task(spec: Spec) -> Task:
    """The task of the point before, where it is the same one: data sets take time to load."""
    learned = learned_of(spec)
    if learned not in _last_task:
        _last_task.clear()
        _last_task[learned] = spec.make_task()
    return _last_task[learned]


_last_task: dict[str, Task] = {}
