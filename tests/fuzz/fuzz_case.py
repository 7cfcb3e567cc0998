"""One random experiment: a seed is a case, and a case can be printed as Python."""

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import tardigrad as tg
from tardigrad.clusters import Cluster, TimedCluster
from tardigrad.links import Link
from tardigrad.policies import Policy
from tardigrad.rules import Rule
from tardigrad.tasks import Task
from tardigrad.work import AnyWork
from tests.fuzz import fuzz_tasks
from tests.fuzz.fuzz_control import draw_cluster, draw_link, draw_policy, paced, stopping
from tests.fuzz.fuzz_draws import Draws
from tests.fuzz.fuzz_rules import RuleDraw, draw_rule
from tests.fuzz.fuzz_works import WorkDraw, draw_work, with_codec

FEW_WORKERS, FEW_UPDATES = 3, 50
"""With more of both, some rules make a last bit grow by itself."""
COMPILED = 50
"""One in so many has its gradients compiled; the others' are traced, and run eagerly."""


@dataclass(frozen=True)
class Case:
    seed: int
    task: dict[str, Any]
    rule: RuleDraw
    policy: Policy
    cluster: Cluster
    link: Link
    updates: int
    shards: int
    shard_by: Literal["slice", "tensor"]
    chunk: int | None
    measures: tuple[str, ...]
    evaluate_every: int
    checkpoint_every: int
    interrupt_after: int
    """Updates after which a run is interrupted, to be resumed."""
    compiled: bool = False
    work: WorkDraw = field(default_factory=WorkDraw)

    def make_task(self) -> Task:
        return fuzz_tasks.task(**self.task, compiled=self.compiled)

    def make_rule(self) -> Rule:
        return self.rule.make()

    @cached_property
    def made_work(self) -> AnyWork:
        return self.work.make()

    @property
    def options(self) -> dict[str, Any]:
        """What both engines are told."""
        return {
            "shard_by": self.shard_by,
            "work": self.made_work,
            "evaluation": tg.Evaluation(
                self.evaluate_every, ("train", "validation"), self.measures
            ),
        }

    def text(self) -> str:
        """As Python that runs in this folder."""
        task = ", ".join(f"{name}={value!r}" for name, value in self.task.items())
        parts = f"{self.policy!r} {self.cluster!r} {self.link!r} {self.options['evaluation']!r}"
        names = sorted(set(re.findall(r"[A-Z]\w+", parts)) & set(tg.__all__))
        return f"""
from dataclasses import replace
import torch
import tardigrad as tg
from tests.fuzz.fuzz_tasks import task
from tests.work.heavy_ball import HeavyBall
from root_penalty import root_penalty
from tardigrad import {", ".join([*names, "rules", "rates", "simulate"])}

run = simulate(
    task({task}),
    {self.rule.text()},
    policy={self.policy!r},
    cluster={self.cluster!r},
    link={self.link!r},
    updates={self.updates},
    seed={self.seed},
    shards={self.shards},
    shard_by={self.shard_by!r},
    work={self.work.text},
    evaluation={self.options["evaluation"]!r},
    engine="exact",  # or "fast", with limits=Limits(chunk={self.chunk})
)
# a checkpoint every {self.checkpoint_every} updates, interrupted after {self.interrupt_after}
# again: python -m pytest tests/fuzz -k seed{self.seed:04d}
"""


def draw_case(seed: int) -> Case:
    draw = Draws(seed, "case")
    workers, clock = draw.integer(1, 6), draw.chance(0.88)
    task, chunk = fuzz_tasks.draw_task(seed, workers), draw.choice([1, 3, 4, 16, None])
    compiled = seed % COMPILED == COMPILED - 1
    if compiled:  # few shapes, because each takes many seconds
        task, chunk = fuzz_tasks.COMPILED, 4
    policy = draw_policy(seed, workers, clock)
    link = draw_link(seed, policy)
    policy = stopping(seed, policy, link)
    rule = draw_rule(seed, workers, task["kind"] == "module", link.reads_deviation)
    if policy.gives_weights and rule.name.startswith("dana"):  # which is refused
        policy = tg.Sync()
    shards, shard_by = _sharding(draw, task, rule.per)
    cluster = draw_cluster(seed, workers, shards, clock)
    if policy.needs_all and isinstance(cluster, tg.Dispatcher):
        cluster = replace(cluster, drawn_factor=min(1.0, cluster.drawn_factor))  # else refused
    updates = draw.choice([1, 4, 12, 25, 40, FEW_UPDATES])
    if workers <= FEW_WORKERS and draw.chance(0.3):
        updates = draw.choice([80, 120])
    measures = draw.choice([*[()] * 8, ("gap",), ("b_staleness",)])
    work = draw_work(seed, link, measures)
    if isinstance(cluster, TimedCluster) and not link.reads_deviation:
        policy = paced(seed, policy, work.make().batches)
    return Case(
        seed,
        task,
        rule,
        policy,
        cluster,
        with_codec(seed, link, measures),
        updates,
        shards,
        shard_by,
        chunk,
        measures,
        evaluate_every=draw.choice([0, 0, 7, 20]),
        checkpoint_every=draw.choice([1, 3, 10]),
        interrupt_after=draw.integer(1, updates),
        compiled=compiled,
        work=work,
    )


def _sharding(
    draw: Draws, task: dict[str, Any], per: str
) -> tuple[int, Literal["slice", "tensor"]]:
    """What the rule allows: its norms are of whole tensors, or of all of them."""
    shards = draw.choice([1, 1, 2, 3, 4])
    if per == "global":
        return 1, "slice"
    if per == "layer" or draw.chance(0.4):
        return min(shards, len(fuzz_tasks.task(**task).layout.names)), "tensor"
    return shards, "slice"
