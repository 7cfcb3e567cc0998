"""Experiments with one thing wrong in them, each to be refused before anything runs."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.rules import rates
from tests.fuzz.fuzz_draws import Draws
from tests.fuzz.fuzz_tasks import LAYOUT, task
from tests.fuzz.fuzz_wrong_work import NO_COUNT, NO_NUMBER, WRONG_WORK, Parts, Wrong


def sound(draw: Draws) -> Parts:
    """An experiment that nothing is wrong with."""
    return {
        "task": task(kind="loss and gradient"),
        "rule": rules.sgd(0.01),
        "policy": tg.Async(),
        "cluster": tg.Gamma(workers=draw.integer(2, 5), mean_s=1.0),
        "updates": draw.integer(3, 12),
        "seed": draw.integer(0, 99),
        "shards": draw.integer(1, 4),
        "engine": draw.choice(["exact", "fast", "auto"]),
    }


unchecked: Any = tg  # calls that a type checker would refuse


def _rate(d: Draws) -> Any:
    return d.choice([0.0, -0.1, nan, inf, "0.1", None, True])


WRONG: dict[str, Wrong] = {
    # Parts that say something impossible themselves.
    "workers": lambda d, w, s: {"cluster": tg.Gamma(workers=d.choice(NO_COUNT))},
    "mean_s": lambda d, w, s: {"cluster": tg.Exponential(w, mean_s=d.choice([0.0, -1.0, nan]))},
    "step_s": lambda d, w, s: {"cluster": tg.Constant(w, step_s=(1.0,) * (w + 1))},
    "exponent": lambda d, w, s: {"cluster": tg.Pareto(w, exponent=0.0)},
    "straggle": lambda d, w, s: {"cluster": tg.Stragglers(w, straggle=d.uniform(1.1, 3.0))},
    "trace": lambda d, w, s: {"cluster": tg.Trace("nowhere.csv", workers=w)},
    "weights": lambda d, w, s: {"cluster": tg.Dispatcher(w, weights=(0.0,) * w)},
    "too few weights": lambda d, w, s: {"cluster": tg.Dispatcher(w, weights=(1.0,) * (w - 1))},
    "latency": lambda d, w, s: {
        "cluster": tg.Gamma(w, network=tg.Network(latency_s=d.choice([-0.1, nan, inf])))
    },
    "bandwidth alone": lambda d, w, s: {
        "cluster": tg.Gamma(w, network=tg.Network(bandwidth_bytes_s=1e6))
    },
    "returns first": lambda d, w, s: {
        "cluster": tg.Gamma(w, absences=(tg.Absence(0, 3.0, d.choice([3.0, 1.0, nan])),))
    },
    "leaves": lambda d, w, s: {
        "cluster": tg.Gamma(w, absences=(tg.Absence(0, d.choice([-1.0, nan, inf])),))
    },
    "outage": lambda d, w, s: {
        "cluster": tg.Gamma(
            w, network=tg.Network(outages=(tg.Outage(0, 3.0, d.choice([2.0, nan])),))
        )
    },
    "backups": lambda d, w, s: {"policy": unchecked.Backup(d.choice([-1, 1.5, "1", None]))},
    "groups": lambda d, w, s: {"policy": tg.SoftSync(d.choice(NO_COUNT))},
    "bound": lambda d, w, s: {"policy": unchecked.StaleSynchronous(d.choice([-1, 1.5, nan, "2"]))},
    "max_delay": lambda d, w, s: {"policy": unchecked.BoundedDelay(d.choice([-1, 1.5, None]))},
    "timeout_s": lambda d, w, s: {"policy": tg.Deadline(d.choice([-1.0, *NO_NUMBER]))},
    "push": lambda d, w, s: {"policy": tg.Partial(push=d.choice(NO_COUNT))},
    "pull": lambda d, w, s: {"policy": tg.Partial(pull=d.choice([0.0, 1.1, *NO_NUMBER]))},
    "ramp": lambda d, w, s: {"policy": tg.RampUp(tg.Async(), updates=d.choice(NO_COUNT))},
    "pulls twice": lambda d, w, s: {"policy": tg.PartialPull(tg.Partial(pull=0.5), 0.5)},
    "ramp inside": lambda d, w, s: {"policy": tg.PartialPull(tg.RampUp(tg.Async(), 5), 0.5)},
    "every": lambda d, w, s: {"link": tg.Every(d.choice(NO_COUNT), 1)},
    "c_push": lambda d, w, s: {"link": tg.BandwidthAware(d.choice([-1.0, *NO_NUMBER]))},
    "on_drop": lambda d, w, s: {"link": unchecked.BandwidthAware(1.0, on_drop="averaged")},
    "bytes": lambda d, w, s: {"link": tg.Budget(d.choice([0.0, -1.0, *NO_NUMBER]))},
    "lr": lambda d, w, s: {"rule": rules.sgd(_rate(d))},
    "momentum": lambda d, w, s: {"rule": rules.sgd(0.1, momentum=d.choice(NO_NUMBER))},
    "nesterov": lambda d, w, s: {"rule": rules.sgd(0.1, nesterov=True)},
    "betas": lambda d, w, s: {"rule": rules.adam(0.1, betas=(d.choice([1.0, -0.1, nan]), 0.9))},
    "weight_decay": lambda d, w, s: {"rule": rules.adam(0.1, weight_decay=d.choice([-1.0, nan]))},
    "ema": lambda d, w, s: {"rule": replace(rules.sgd(0.1), ema=d.choice([0.0, 1.0, nan]))},
    "clip_norm": lambda d, w, s: {"work": tg.OneGradient(d.choice([0.0, nan]))},
    "per": lambda d, w, s: {"rule": unchecked.rules.gap_aware(0.1, per="tensor")},
    "milestones": lambda d, w, s: {"rule": rules.sgd(rates.step(0.1, (20.0, 10.0)))},
    "layout": lambda d, w, s: {
        "task": tg.FunctionTask(torch.ones(LAYOUT.size + 1), _same, layout=LAYOUT)
    },
    # Parts that do not fit each other.
    "too many backups": lambda d, w, s: {"policy": tg.Backup(w + d.integer(0, 2))},
    "too many groups": lambda d, w, s: {"policy": tg.SoftSync(w + 1)},
    "too large a push": lambda d, w, s: {"policy": tg.RampUp(tg.Partial(push=w + 1), 3)},
    "no clock": lambda d, w, s: {
        "cluster": tg.Dispatcher(w),
        "policy": d.choice([tg.Deadline(1.0), tg.Partial(1, push_timeout_s=1.0)]),
    },
    "no such worker": lambda d, w, s: {"cluster": tg.Gamma(w, absences=(tg.Absence(w, 1.0),))},
    "no such slow shard": lambda d, w, s: {
        "cluster": tg.Gamma(w, network=tg.Network(slow_shards=(tg.SlowShard(s, 2.0),)))
    },
    "no such stopped shard": lambda d, w, s: {
        "cluster": tg.Gamma(w, network=tg.Network(outages=(tg.Outage(s, 2.0, 3.0),)))
    },
    "averages in rounds": lambda d, w, s: {
        "policy": d.choice([tg.Sync(), tg.Deadline(9.0), tg.SoftSync(1)]),
        "link": tg.Every(push=2),
    },
    "no deviation": lambda d, w, s: {
        "link": d.choice([tg.BandwidthAware(1.0, 1.0), tg.Budget(40.0)])
    },
    "fast, by tensors": lambda d, w, s: {
        "rule": rules.fasgd(0.01),
        "link": tg.Budget(40.0),
        "engine": "fast",
    },
    "norm of all, in parts": lambda d, w, s: {
        "rule": rules.gap_aware(0.1, per="global"),
        "shards": 2,
    },
    "norm of cut tensors": lambda d, w, s: {
        "rule": rules.gap_aware(0.1, per="layer"),
        "shards": 4,
    },
    "more shards than parameters": lambda d, w, s: {"shards": LAYOUT.size + 1},
    "more shards than tensors": lambda d, w, s: {"shards": 5, "shard_by": "tensor"},
    "no epochs": lambda d, w, s: {"rule": rules.sgd(rates.cosine(0.1, 2.0, by="epochs"))},
    "no share": lambda d, w, s: {
        "task": task(kind="module", loss="mse", sampling="partition", workers=w - 1)
    },
    "no previous step": lambda d, w, s: {"rule": rules.Rule(0.1, rules.Adam(), rules.Gap())},
    # Arguments of the run itself.
    "updates": lambda d, w, s: {"updates": d.choice(NO_COUNT)},
    "shards": lambda d, w, s: {"shards": d.choice(NO_COUNT)},
    "seed": lambda d, w, s: {"seed": d.choice([-1, 1.5, "0"])},
    "engine": lambda d, w, s: {"engine": "quick"},
    "shard_by": lambda d, w, s: {"shard_by": "layer"},
    "measures": lambda d, w, s: {
        "evaluation": tg.Evaluation(measures=d.choice([("gaps",), "gap"]))
    },
    "evaluation": lambda d, w, s: {"evaluation": d.choice([-1, 2.5, "1"])},
    "chunk": lambda d, w, s: {
        "limits": tg.Limits(chunk=d.choice(NO_COUNT)),
        "engine": "fast",
    },
    "memory_gib": lambda d, w, s: {"limits": tg.Limits(memory_gib=d.choice([0.0, -1.0, nan]))},
    "splits": lambda d, w, s: {
        "task": task(kind="module", loss="mse"),
        "evaluation": tg.Evaluation(1, ("training",)),
    },
    "cluster": lambda d, w, s: {"cluster": None},
}


WRONG |= WRONG_WORK


def _same(view: Any, worker: int, step: int) -> Any:
    return view


def start(name: str, seed: int, watch: Callable[[Any], None]) -> None:
    """Try to run it."""
    draw = Draws(seed, f"wrong {name}")
    parts = sound(draw)
    parts |= WRONG[name](draw, parts["cluster"].workers, parts["shards"])
    tg.simulate(**parts, watch=watch)
