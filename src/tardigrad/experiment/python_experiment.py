"""An experiment of Python objects, as a cell runs it."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from tardigrad.clusters import Cluster
from tardigrad.core.checks import require
from tardigrad.engine import Evaluation, Limits, Observer, Stop
from tardigrad.engine.choose import Engine
from tardigrad.engine.execute import (
    ShardBy,
    check_combination,
    check_setting,
    prepare,
    prepare_together,
    work_of,
)
from tardigrad.engine.execution import Execution
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.structure import Plain
from tardigrad.links import Full, Link
from tardigrad.policies import Async, Policy
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule, check_control, schedule
from tardigrad.tasks import Task
from tardigrad.work import AnyWork, OneGradient

SeededTask = Callable[[int], Task]
"""A task of a seed, which gives it initial weights, data and batches."""


class CompareSetting(TypedDict, total=False):
    """What `tg.compare` takes by name beside task and rules, as `tg.simulate` does."""

    policy: Policy | None
    cluster: Cluster
    updates: int
    seed: int
    shards: int
    engine: Engine
    link: Link | None
    shard_by: ShardBy
    evaluation: Evaluation | int
    limits: Limits | None
    stop: Stop | None
    work: AnyWork | None


@dataclass(frozen=True)
class PythonExperiment:
    """One experiment. `token` is shared by those that differ in rule and seed alone.

    evaluation: left out: twenty times in a run.
    """

    task: Task | SeededTask
    rule: Rule
    token: str
    policy: Policy | None = None
    cluster: Cluster | None = None
    updates: int = 1000
    seed: int = 0
    shards: int = 1
    engine: Engine = "auto"
    link: Link | None = None
    shard_by: ShardBy = "slice"
    evaluation: Evaluation = field(default_factory=lambda: Evaluation(0))
    limits: Limits | None = None
    stop: Stop | None = None
    work: AnyWork | None = None
    about: Mapping[str, Plain] = field(default_factory=dict)

    @classmethod
    def of(
        cls, task: Task | SeededTask, rule: Rule, token: str, setting: CompareSetting
    ) -> "PythonExperiment":
        """With everything checked that can be before a run."""
        known = list(CompareSetting.__annotations__)
        for name in setting:
            require(name in known, f"there is no {name!r} to set: it takes {', '.join(known)}")
        updates = setting.get("updates", 1000)
        given: dict[str, Any] = {**setting}
        about = check_control(
            setting.get("policy") or Async(),
            setting.get("cluster"),
            updates,
            setting.get("seed", 0),
            setting.get("shards", 1),
            setting.get("link") or Full(),
            (setting.get("work") or OneGradient()).batches,
        )
        every = setting.get("evaluation", max(1, updates // 20))
        given["evaluation"] = Evaluation.of(every)
        require(
            given["evaluation"].every > 0,
            "a comparison is of evaluations, but evaluation=0 makes none: leave it out, or give "
            "the number of updates between them",
        )
        data = {"updates": updates, **about, "task": {"name": task_name(task)}}
        return cls(task, rule, token, about=_without_none(data), **given)

    @classmethod
    def of_spec(cls, spec: Spec, rule: Rule, token: str) -> "PythonExperiment":
        """A spec with a rule that is a Python object."""
        return cls(
            TaskOfSpec(spec),
            rule,
            token,
            spec.make_policy(),
            spec.make_cluster(),
            spec.updates,
            spec.seed,
            spec.shards,
            spec.engine,
            spec.make_link(),
            spec.shard_by,
            spec.evaluation,
            spec.limits,
            spec.make_stop(),
            spec.make_work(),
            spec.data(),
        )

    @property
    def control(self) -> str:
        return f"{self.token}, seed {self.seed}"

    @property
    def scheduled_ahead(self) -> bool:
        return self.link is None or not self.link.reads_deviation

    @property
    def learned(self) -> str:
        return self.token if is_task(self.task) else self.control

    def make_schedule(self) -> Schedule | None:
        """Who pushes when; None where a link makes it depend on tensors."""
        if not self.scheduled_ahead:
            return None
        return schedule(
            self.policy,
            self.cluster,
            self.updates,
            self.seed,
            self.shards,
            self.link,
            batches=(self.work or OneGradient()).batches,
        )

    def make_task(self) -> Task:
        if is_task(self.task):
            return self.task  # type: ignore[return-value]
        made = self.task(self.seed)  # type: ignore[operator]
        require(
            is_task(made),
            f"task({self.seed}) must return a task, such as tg.ModuleTask(…, seed=seed), and "
            f"returned {made!r}",
        )
        return made

    def make_rule(self) -> Rule:
        return self.rule

    def make_stop(self) -> Stop | None:
        return self.stop

    def make_loggers(self, folder: Path) -> list[Observer]:
        """None: objects have no [log]; observers are given as such."""
        return []

    def check(self, task: Task, rule: Rule) -> None:
        """Refuse what can be refused before its schedule is made."""
        policy, link, work = self.policy or Async(), self.link or Full(), work_of(self.work, rule)
        measures, limits = self.evaluation.measures, self.limits or Limits()
        check_combination(task, rule, policy, link, work, self.shards, self.shard_by, measures)
        assert self.cluster is not None
        check_setting(task, rule, self.cluster, self.updates, self.evaluation, limits, self.stop)

    def prepare(self, schedule: Schedule | None, task: Task, rule: Rule) -> Execution:
        measures = self.evaluation.measures
        if schedule is not None:
            return prepare(
                schedule,
                task,
                rule,
                self.engine,
                self.shard_by,
                measures,
                self.limits,
                work=self.work,
                codec=None if self.link is None else self.link.codec,
            )
        assert self.link is not None
        return prepare_together(
            task,
            rule,
            self.policy or Async(),
            self.cluster,
            self.updates,
            self.seed,
            self.shards,
            self.engine,
            self.link,
            self.shard_by,
            measures,
            self.work,
        )

    def limited_to(self, memory_gib: float) -> "PythonExperiment":
        limits = self.limits or Limits()
        if limits.memory_gib is not None:
            return self
        return replace(self, limits=replace(limits, memory_gib=memory_gib))

    def data(self) -> dict[str, Plain]:
        return {**self.about, "seed": self.seed, "rule": {"name": repr(self.rule)}}


@dataclass(frozen=True)
class TaskOfSpec:
    """A spec's task, of any seed."""

    spec: Spec

    def __call__(self, seed: int) -> Task:
        return replace(self.spec, seed=seed).make_task()


def is_task(given: object) -> bool:
    return hasattr(given, "gradient") and hasattr(given, "start")


def task_name(task: Task | SeededTask) -> str:
    """A name for titles."""
    module = getattr(task, "module", None)
    named = type(module if module is not None else task).__name__ if is_task(task) else ""
    return named or (task.__name__ if inspect.isroutine(task) else type(task).__name__)


def _without_none(data: Any) -> Any:
    """What TOML can say: it has no null."""
    if isinstance(data, Mapping):
        return {name: _without_none(value) for name, value in data.items() if value is not None}
    return [_without_none(one) for one in data] if isinstance(data, list | tuple) else data
