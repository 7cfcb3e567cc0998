"""A small task and runs of it, shared by the tests of the fast engine.

One task and one chunk wherever possible: each batch size of each task is compiled once a session.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn

import tardigrad as tg
from tardigrad.engine import Tick
from tardigrad.rules import RULES, Adam, DelayCompensation, Rule
from tardigrad.rules.rates import cosine
from tardigrad.tasks import Data, ModuleTask, Split
from tardigrad.tasks.module import initialised
from tests.rules.named_rules import made

CHUNK = 4
RULE_CASES: dict[str, Rule] = {name: made(name, 0.05, weight_decay=1e-3) for name in RULES} | {
    "fasgd_magnitude": tg.rules.fasgd(lr=0.01, estimator="magnitude"),
    "delay_compensated_adaptive": tg.rules.delay_compensated(lr=0.05, adaptive=True, momentum=0.5),
    "gap_layer": tg.rules.gap_aware(lr=0.05, per="layer"),
    "gap_global": tg.rules.gap_aware(lr=0.05, per="global"),
    "composed": Rule(0.01, Adam(), DelayCompensation(lam=0.1), ema=0.9),
    "no_decay": tg.rules.adamw(lr=0.05, weight_decay=0.1, no_decay=("*bias",)),
    "rate_scale": replace(
        tg.rules.adamw(lr=0.05, weight_decay=0.1), rate_scale={"0.*": 2.0, "*bias": 0.5}
    ),
    "rate_scale_dana_ga": replace(tg.rules.dana_ga(lr=0.02), rate_scale={"*bias": 3.0}),
    "cosine": tg.rules.adam_ga(lr=cosine(0.05, over=2, by="epochs")),
}
POLICY_CASES: dict[str, tuple[Any, Any, int]] = {
    "gamma": (tg.Async(), tg.Gamma(workers=4, heterogeneous=True), 1),
    "uniform": (tg.Async(), tg.Dispatcher(workers=4), 1),
    "no wait": (tg.Async(wait=False), tg.Gamma(workers=4), 1),
    "shards": (tg.Async(), tg.Gamma(workers=4), 3),
    "sync": (tg.Sync(), tg.Gamma(workers=4), 2),
    "backup": (tg.Backup(backups=1), tg.Gamma(workers=4, heterogeneous=True), 1),
    "soft": (tg.SoftSync(groups=2), tg.Gamma(workers=4, heterogeneous=True), 1),
    "stale": (tg.StaleSynchronous(bound=2), tg.Gamma(workers=4, heterogeneous=True), 2),
}


@cache
def task(
    dtype: str = "float64", batch_norm: bool = False, dropout: bool = False, device: str = "cpu"
) -> ModuleTask:
    """A perceptron 12-9-3 on keyed data."""

    def make() -> nn.Module:
        middle: list[nn.Module] = [nn.BatchNorm1d(9)] if batch_norm else []
        middle += [nn.Dropout(0.5)] if dropout else []
        # Before BatchNorm a bias has no gradient but rounding, which Adam would make steps of.
        first = nn.Linear(12, 9, bias=not batch_norm)
        return nn.Sequential(first, *middle, nn.ReLU(), nn.Linear(9, 3))

    draw = torch.Generator().manual_seed(1)
    inputs = torch.randn(240, 12, generator=draw, dtype=torch.float64)
    labels = (inputs @ torch.randn(12, 3, generator=draw, dtype=torch.float64)).argmax(1)
    data = Data(Split(inputs[:200], labels[:200]), Split(inputs[200:], labels[200:]))
    return ModuleTask(initialised(make, 0), "cross_entropy", data, 5, dtype=dtype, device=device)


def run(schedule: tg.Schedule, rule: Rule, engine: str, **options: Any) -> tg.Run:
    on = options.pop("task", None) or task()
    if engine == "fast" and on.start().device.type == "cpu":
        options.setdefault("limits", tg.Limits(chunk=CHUNK))
    return tg.execute(schedule, on, rule, engine, **options)  # type: ignore[arg-type]


class Stop(Exception):
    pass


def stop_after(updates: int) -> Any:
    def watch(tick: Tick) -> None:
        if tick.updates >= updates:
            raise Stop

    return watch


def bits(one: tg.Run) -> list[Any]:
    history = one.history
    records = [{k: v for k, v in r.items() if k != "wall_s"} for r in history.records]
    return [one.params.tolist(), history.loss, history.gap, records, len(one.buffers)]
