"""An experiment as data: frozen, comparable, and the same thing as a TOML file."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_type_hints

import tomli_w
import torch

from tardigrad.clusters import CLUSTERS, Cluster
from tardigrad.core.checks import count, require
from tardigrad.core.layout import Layout
from tardigrad.core.own_code import brief, located
from tardigrad.engine import Evaluation, Limits, Observer, Stop
from tardigrad.engine.choose import Engine
from tardigrad.engine.execute import check_combination, check_setting, prepare, prepare_together
from tardigrad.engine.execution import Execution
from tardigrad.engine.lockstep import check_deviation
from tardigrad.engine.run import Say
from tardigrad.experiment.loggers import LOGGERS
from tardigrad.experiment.spec_data import (
    SECTIONS,
    Table,
    changed,
    clipping_in_work,
    read_toml,
    with_new_keys,
)
from tardigrad.experiment.structure import Plain, Registry, Structure, parameters_of, table
from tardigrad.links import CODECS, LINKS, Codec, Link
from tardigrad.policies import POLICIES, Policy
from tardigrad.rules import RULES, WEIGHTS, Rule, StalenessWeight
from tardigrad.rules.rates import RATES, LearningRate
from tardigrad.runtime.placement import Placement
from tardigrad.scheduling import Schedule, check_control, schedule
from tardigrad.tasks import TASKS, Task
from tardigrad.work import WORKS, AnyWork, Work

TASK = Registry("task", TASKS, Task)
RULE = Registry("rule", RULES, Rule)
POLICY = Registry("policy", POLICIES, Policy)
CLUSTER = Registry("cluster", CLUSTERS, Cluster)
LINK = Registry("link", LINKS, Link)
CODEC = Registry("codec", CODECS, Codec)
WORK = Registry("work", WORKS, Work)
RATE = Registry("rate", RATES, LearningRate, key="rate")
WEIGHT = Registry("weight", WEIGHTS, StalenessWeight)
STRUCTURE = Structure(
    {
        Policy: POLICY,
        Cluster: CLUSTER,
        Codec: CODEC,
        LearningRate: RATE,
        Rule: RULE,
        StalenessWeight: WEIGHT,
    }
)

LOGGER = Registry("logger", LOGGERS, Observer)
_FILLED_LATER = {"folder": Path(), "name": ""}
"""What a logger takes from the run's folder unless the file says it."""

NAMELESS = ("stop", "ray")
"""Tables that are arguments alone."""
EVERY_RULE = ("ema", "weight_decay", "no_decay", "rate_scale")
"""What [rule] may say for any rule, where it is not an argument of the rule's own."""


def _async() -> Table:
    return {"name": "async"}


def _full() -> Table:
    return {"name": "full"}


def _gradient() -> Table:
    return {"name": "gradient"}


@dataclass(frozen=True)
class Spec:
    """One experiment. Whatever is wrong in it is told when it is made, with its path."""

    updates: int
    """How many updates every shard makes."""
    task: Table
    """What is learned: a name of `tardigrad list tasks` and its arguments."""
    rule: Table
    """How gradients are applied: `tardigrad list rules`; lr is a number or a rate's table."""
    cluster: Table
    """When things happen: `tardigrad list clusters`."""
    policy: Table = field(default_factory=_async)
    """Who waits for whom: `tardigrad list policies`."""
    link: Table = field(default_factory=_full)
    """What crosses the wire: `tardigrad list links`; in which form: `tardigrad list codecs`."""
    work: Table = field(default_factory=_gradient)
    """What workers do between a pull and a push: `tardigrad list works`."""
    seed: int = 0
    """Of everything random: initial parameters, batches, step times."""
    shards: int = 1
    """How many servers the parameters are divided over."""
    shard_by: Literal["slice", "tensor"] = "slice"
    """Even slices of the flat vector, or whole tensors."""
    engine: Engine = "auto"
    """Who executes: "exact", "fast", or "auto": fast where it suits the run and pays."""
    chunk: int | None = None
    """Gradients the fast engine computes at a time; left out: what suits the machine."""
    memory_gib: float | None = None
    """What the run may take; left out: what the machine has left."""
    evaluate_every: int | None = None
    """Updates between evaluations; 0 never, left out: twenty times in a run."""
    checkpoint_every: int | None = None
    """Updates between checkpoints; 0 only at the end, left out: ten times in a run."""
    splits: tuple[str, ...] = ("validation",)
    """What is evaluated: of "train", "validation" and "test"."""
    measures: tuple[str, ...] = ()
    """What is recorded of every applied gradient: of "gap" and "b_staleness"."""

    stop: Table = field(default_factory=dict)
    """What ends it early: loss, accuracy, wall_s, virtual_s, patience."""
    log: tuple[Table, ...] = ()
    """Who else is told how it goes: names of `tardigrad list loggers` and their arguments."""
    ray: Table = field(default_factory=dict)
    """What a run on Ray takes of a cluster: gpus_per_worker and the like."""
    sync_log: bool = False
    """On Ray: logs survive loss of power, and other machines see them at once (needed on NFS)."""

    def __post_init__(self) -> None:
        for name in SECTIONS:  # so that they are the same from any folder
            object.__setattr__(self, name, located(getattr(self, name), Path.cwd()))
        object.__setattr__(self, "log", tuple(located(list(self.log), Path.cwd())))
        for name, table_ in clipping_in_work({"rule": self.rule, "work": self.work}).items():
            object.__setattr__(self, name, table_)
        count("updates", self.updates)
        require(
            isinstance(self.sync_log, bool), f"sync_log is true or false, got {self.sync_log!r}"
        )
        count("seed", self.seed, least=0)
        count("shards", self.shards)
        for name, share in (("evaluate_every", 20), ("checkpoint_every", 10)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, max(1, self.updates // share))
            count(name, getattr(self, name), least=0)
        # They check what they are made of.
        _ = self.evaluation, self.limits, self.make_stop(), self.make_placement()
        for place, table_ in self._logs():
            maker, args = STRUCTURE.choose(LOGGER, place, table_)
            STRUCTURE.arguments(maker, place, args, _FILLED_LATER)
        policy, cluster, link = self.make_policy(), self.make_cluster(), self.make_link()
        batches = self.make_work().batches
        check_control(policy, cluster, self.updates, self.seed, self.shards, link, batches)
        rule = self.make_rule()
        check_deviation(rule, link, rule.start(torch.zeros(1), Layout.flat(1)))
        maker, args = STRUCTURE.choose(TASK, "task", self.task)
        STRUCTURE.arguments(maker, "task", args, self._fill())

    @property
    def evaluation(self) -> Evaluation:
        assert self.evaluate_every is not None
        return Evaluation(self.evaluate_every, self.splits, self.measures)

    @property
    def limits(self) -> Limits:
        return Limits(self.chunk, self.memory_gib)

    def make_stop(self) -> Stop | None:
        return Stop(**STRUCTURE.arguments(Stop, "stop", self.stop)) if self.stop else None

    def make_placement(self) -> Placement:
        made: Placement = STRUCTURE.call(Placement, "ray", self.ray)
        return made

    def make_loggers(self, folder: Path) -> list[Observer]:
        """Those of [log], for a run in this folder; nothing is written before it starts."""
        made = []
        for place, table_ in self._logs():
            inside = folder / brief(str(table_["name"])).partition(":")[0]
            fill = {"folder": inside, "name": folder.name}
            made.append(STRUCTURE.named(LOGGER, place, table_, fill))
        return made

    def _logs(self) -> list[tuple[str, Table]]:
        """With where each stands."""
        many = len(self.log) > 1
        return [(f"log.{i}" if many else "log", one) for i, one in enumerate(self.log)]

    def make_cluster(self) -> Cluster:
        made: Cluster = STRUCTURE.named(CLUSTER, "cluster", self.cluster)
        return made

    def make_policy(self) -> Policy:
        made: Policy = STRUCTURE.named(POLICY, "policy", self.policy)
        return made

    def make_link(self) -> Link:
        made: Link = STRUCTURE.named(LINK, "link", self.link, self._fill())
        return made

    def make_work(self) -> AnyWork:
        made: AnyWork = STRUCTURE.named(WORK, "work", self.work, self._fill())
        return made

    def make_rule(self) -> Rule:
        return rule_of(self.rule, self._fill())

    def make_task(self) -> Task:
        made: Task = STRUCTURE.named(TASK, "task", self.task, self._fill())
        return made

    def make_schedule(self) -> Schedule | None:
        """Who pushes when; None where a link makes it depend on tensors."""
        if not self.scheduled_ahead:
            return None
        return schedule(
            self.make_policy(),
            self.make_cluster(),
            self.updates,
            self.seed,
            self.shards,
            self.make_link(),
            batches=self.make_work().batches,
        )

    def check(self, task: Task, rule: Rule) -> None:
        """Refuse what can be refused before its schedule is made."""
        policy, link, work = self.make_policy(), self.make_link(), self.make_work()
        check_combination(task, rule, policy, link, work, self.shards, self.shard_by, self.measures)
        cluster, stop = self.make_cluster(), self.make_stop()
        check_setting(task, rule, cluster, self.updates, self.evaluation, self.limits, stop)

    def prepare(
        self, schedule: Schedule | None, task: Task, rule: Rule, say: Say | None = None
    ) -> Execution:
        """What will execute the schedule, or make it meanwhile."""
        if schedule is not None:
            return prepare(
                schedule,
                task,
                rule,
                self.engine,
                self.shard_by,
                self.measures,
                self.limits,
                say,
                self.make_work(),
                self.make_link().codec,
            )
        return prepare_together(
            task,
            rule,
            self.make_policy(),
            self.make_cluster(),
            self.updates,
            self.seed,
            self.shards,
            self.engine,
            self.make_link(),
            self.shard_by,
            self.measures,
            self.make_work(),
        )

    @property
    def control(self) -> str:
        """What its schedule depends on: specs that agree in it share one. Of the work that is the
        batches of a row."""
        data, batches = self.data(), self.make_work().batches
        data["work"] = batches if batches > 1 else None
        return _key(data, "policy", "cluster", "link", "work", "updates", "seed", "shards")

    @property
    def scheduled_ahead(self) -> bool:
        """Whether its schedule does not depend on tensors, as one with B-FASGD's link does."""
        return not self.make_link().reads_deviation

    @property
    def learned(self) -> str:
        """What its task depends on: specs that agree in it share one."""
        return _key(self.data(), "task", "cluster", "seed")

    def limited_to(self, memory_gib: float) -> "Spec":
        """With so much memory, where it does not say its own."""
        return self if self.memory_gib is not None else replace(self, memory_gib=memory_gib)

    def _fill(self) -> dict[str, Any]:
        """What tasks and learning rates take from the rest of the spec unless they say it."""
        return {"seed": self.seed, "workers": self.make_cluster().workers}

    def data(self) -> dict[str, Plain]:
        """All of it as plain data, defaults spelled out."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        out = {name: value for name, value in values.items() if value is not None}
        out |= {"splits": list(self.splits), "measures": list(self.measures)}
        out |= {"log": [dict(one) for one in self.log]}
        # Left out where they say nothing, as in files that are older than they.
        if out["work"] == _gradient():
            del out["work"]
        return {n: v for n, v in out.items() if v or n not in (*NAMELESS, "log")}

    def toml(self) -> str:
        return tomli_w.dumps(self.data())

    @classmethod
    def of(cls, data: Table) -> "Spec":
        """From plain data; a section may be a bare name where it needs no arguments."""
        sections = {
            name: {"name": value} if name in SECTIONS and isinstance(value, str) else value
            for name, value in table("the spec", with_new_keys(data)).items()
        }
        if isinstance(sections.get("link"), dict):  # a codec may stand there alone
            sections["link"] = {**_full(), **sections["link"]}
        if "log" in sections:
            sections["log"] = _logs_of(sections["log"])
        return cls(**STRUCTURE.arguments(cls, "", sections))

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> "Spec":
        """From a TOML file, with changes such as "rule.lr=0.01" made before anything is checked."""
        return cls.of(changed(read_toml(Path(path)), overrides))


def rule_of(said: Table, fill: Mapping[str, Any], place: str = "rule") -> Rule:
    """The rule that a table names; `fill` is what learning rates take unless they say it."""
    maker, args = STRUCTURE.choose(RULE, place, said)
    taken, _ = parameters_of(maker, place)
    also = [name for name in EVERY_RULE if name not in taken]
    hints = get_type_hints(Rule)
    common = {
        name: STRUCTURE.value(f"{place}.{name}", args.pop(name), hints[name])
        for name in also
        if name in args
    }
    made: Rule = STRUCTURE.call(maker, place, args, fill, also)
    RULE.check(place, maker, made)
    try:
        return replace(made, **common)
    except ValueError as error:
        raise ValueError(f"[{place}] {error}") from error


def _key(data: Table, *names: str) -> str:
    return json.dumps([data.get(name) for name in names], sort_keys=True)


def _logs_of(said: Plain) -> Plain:
    """One logger or several, each by its name alone or with arguments."""
    each = said if isinstance(said, list) else [said]
    return [{"name": one} if isinstance(one, str) else one for one in each]
