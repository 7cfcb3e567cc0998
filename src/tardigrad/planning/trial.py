"""One candidate trained with one seed, in virtual time, a little further at a time."""

import json
import math
import os
import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.engine import Diverged
from tardigrad.engine.choose import Engine
from tardigrad.engine.drive import check_finite
from tardigrad.engine.execute import prepare
from tardigrad.engine.execution import Execution
from tardigrad.experiment.spec import STRUCTURE, WORK, Spec, rule_of
from tardigrad.links import Full
from tardigrad.planning.goal import Target
from tardigrad.planning.offers import Candidate
from tardigrad.scheduling import schedule, traffic
from tardigrad.tasks import Task

OCTAVES = 12
"""Evaluations begin at the 2^OCTAVES-th part of the longest time."""
PER_OCTAVE = 8
"""Evaluations while the time doubles: 9% apart."""


class CurvePoint(NamedTuple):
    """One evaluation: when, what it measured, and what had been done by then."""

    time_s: float
    value: float
    updates: int
    delay: float
    """Mean delay of the gradients applied so far."""
    bytes: int
    """Pushed and pulled so far."""


class WallBudget:
    """Seconds of this machine's time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends = time.monotonic() + seconds

    @property
    def spent(self) -> bool:
        return time.monotonic() >= self._ends


class KeptCurves:
    """What trials have measured, also in a file: what was trained once is not trained again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._curves: dict[str, tuple[list[CurvePoint], bool]] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    one = json.loads(line)
                except json.JSONDecodeError:  # the last line of a plan that was killed
                    continue
                points = [CurvePoint(*point) for point in one["points"]]
                self._curves[one["key"]] = points, one["diverged"]

    def find(self, key: str) -> tuple[list[CurvePoint], bool]:
        return self._curves.get(key, ([], False))

    def keep(self, key: str, points: list[CurvePoint], diverged: bool) -> None:
        self._curves[key] = list(points), diverged
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            line = json.dumps({"key": key, "points": points, "diverged": diverged})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())


@dataclass
class Training:
    """What every trial shares.

    Args:
        spec: task, shards, splits and seed; the first of the seeds.
        horizon_s: of virtual time: no trial goes further.
        engine: who executes.
    """

    spec: Spec
    cluster: TimedCluster
    target: Target
    horizon_s: float
    engine: Engine = "auto"
    kept: KeptCurves = field(default_factory=lambda: KeptCurves(None))
    _tasks: dict[int, Task] = field(default_factory=dict, init=False, repr=False)

    def task(self, seed: int) -> Task:
        """With its data, batches and initial weights; the same for every candidate."""
        if seed not in self._tasks:
            self._tasks[seed] = replace(self.spec, seed=self.spec.seed + seed).make_task()
        return self._tasks[seed]

    def trial(self, candidate: Candidate, seed: int) -> "Trial":
        return Trial(self, candidate, seed)

    @cached_property
    def times_s(self) -> list[float]:
        """When trials are evaluated: evenly in the logarithm of time, the same for all, so that a
        short run is measured as finely as a long one."""
        steps = range(-OCTAVES * PER_OCTAVE, 1)
        return [self.horizon_s * 2.0 ** (step / PER_OCTAVE) for step in steps]

    def evaluation_at(self, time_s: float) -> float:
        """When the first evaluation comes that is not before this time; the last, if none does."""
        return next((at_s for at_s in self.times_s if at_s >= time_s), self.horizon_s)

    @property
    def about(self) -> str:
        """What curves depend on beside the candidate."""
        data = self.spec.data()
        parts = [data[name] for name in ("task", "seed", "shards", "splits")]
        parts += [data["work"]] if "work" in data else []
        grid = [self.horizon_s, OCTAVES, PER_OCTAVE]
        return json.dumps([parts, repr(self.cluster), grid, str(self.target.what)])


@dataclass(eq=False)
class Trial:
    """A candidate and a seed, as far as it was trained."""

    training: Training
    candidate: Candidate
    seed: int
    points: list[CurvePoint] = field(default_factory=list)
    diverged: bool = False
    _execution: Execution | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._known, self._known_to_diverge = self.training.kept.find(self._key)

    @property
    def _key(self) -> str:
        return f"{self.training.about} {self.candidate.key} {self.seed}"

    @property
    def reached(self) -> CurvePoint | None:
        """When the target was reached, straight between the evaluations before and after."""
        target = self.training.target
        at = next((i for i, p in enumerate(self.points) if target.reached(p.value)), None)
        if at is None:
            return None
        after = self.points[at]
        before = self.points[at - 1] if at else after
        above, below = target.gap(before.value), target.gap(after.value)
        share = above / (above - below) if above > below else 1.0
        mixed = [a + share * (b - a) for a, b in zip(before, after, strict=True)]
        return CurvePoint(mixed[0], mixed[1], math.ceil(mixed[2]), mixed[3], round(mixed[4]))

    @property
    def lasted_s(self) -> float:
        """Until it reached the target; where it has not, for as long as it was trained, and where
        it diverged, for as long as it might have been."""
        if self.diverged:
            return self.training.horizon_s
        return self.time_s if self.reached is None else self.reached.time_s

    @property
    def begun(self) -> bool:
        """Whether anything is known of it."""
        return bool(self.points) or self.diverged

    @property
    def gap(self) -> float:
        """How far the last evaluation is from the target; infinite where it diverged."""
        if self.diverged or not self.points:
            return math.inf
        return self.training.target.gap(self.points[-1].value)

    @property
    def time_s(self) -> float:
        return self.points[-1].time_s if self.points else 0.0

    def train(self, until_s: float, budget: WallBudget) -> None:
        """Go on to this time, unless it has reached the target, has diverged, or the budget is
        spent."""
        new = False
        for at_s in self.training.times_s:
            past = at_s > until_s * (1 + 1e-9)
            if past or budget.spent or self.diverged or self.reached is not None:
                break
            if at_s > self.time_s * (1 + 1e-9):
                if len(self.points) < len(self._known):  # so that it goes as it went before
                    self.points.append(self._known[len(self.points)])
                    continue
                try:
                    self.diverged = self._known_to_diverge
                    if not self.diverged:
                        new = True
                        self.points.append(self.evaluated(at_s))
                except Diverged:
                    self.diverged = True
        if new:
            self.training.kept.keep(self._key, self.points, self.diverged)
        if self.diverged or self.reached is not None:
            self.let_go()

    def let_go(self) -> None:
        """Of what it holds in order to be trained further."""
        self._execution = None

    def evaluated(self, at_s: float) -> CurvePoint:
        """Train to this time, and measure."""
        execution = self._execution = self._execution or self._prepared()
        end = int(np.searchsorted(execution.schedule.group_time_s, at_s, side="right"))
        until = int(execution.job.updates_at[end])
        while execution.updates < until:
            execution.advance_to(until)
            check_finite(execution)
        if self.points and self.points[-1].updates == execution.updates:
            return self.points[-1]._replace(time_s=at_s)
        made, task = execution.schedule, execution.task
        split = self.training.spec.splits[0]
        value = task.evaluate(execution.params, execution.buffers, split)
        measured = value[self.training.target.what]
        if not math.isfinite(measured):
            raise Diverged(execution.updates, 0, measured, "the evaluation")
        done = int(made.group_start[execution.position])
        crossed = traffic(made, execution.shard_bytes, execution.position, execution.push_bytes)
        return CurvePoint(
            at_s,
            measured,
            execution.updates,
            float(made.delays[:done].mean()) if done else 0.0,
            crossed.push.sent_bytes + crossed.pull.sent_bytes,
        )

    def _prepared(self) -> Execution:
        training, spec = self.training, self.training.spec
        seed, task = spec.seed + self.seed, training.task(self.seed)
        rate = self.candidate.measured.summary.updates_per_s
        updates = math.ceil(1.3 * rate * training.horizon_s) + 20
        candidate, cluster = self.candidate, training.cluster
        batches, codec = candidate.measured.batches, candidate.measured.codec
        parts = (candidate.policy, cluster, updates, seed, spec.shards, Full(codec))
        made = schedule(*parts, batches=batches)
        fill = {"seed": seed, "workers": cluster.workers}
        rule = rule_of(candidate.rule, fill)
        work = STRUCTURE.named(WORK, "work", candidate.work or spec.work, fill)
        limits, by = spec.limits, spec.shard_by
        return prepare(made, task, rule, training.engine, by, (), limits, work=work, codec=codec)
