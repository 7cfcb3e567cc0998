"""Works, codecs, and newer policies and rules, with one thing wrong; as in `fuzz_wrong`."""

from collections.abc import Callable
from math import inf, nan
from typing import Any

import torch

import tardigrad as tg
from tardigrad import rules
from tests.fuzz.fuzz_draws import Draws
from tests.work.heavy_ball import HeavyBall

Parts = dict[str, Any]
"""Arguments of `simulate`."""
Wrong = Callable[[Draws, int, int], Parts]
"""(draws, workers, shards): what is given instead of the sound parts."""

NO_NUMBER: list[Any] = [nan, inf, -inf, "1", None, True]
NO_COUNT: list[Any] = [0, -1, 2.5, nan, "3", True]
NO_SHARE: list[Any] = [0.0, -0.1, 1.1, *NO_NUMBER]
unchecked: Any = tg  # calls that a type checker would refuse


def _local(d: Draws, keep_state: bool = True) -> tg.LocalSteps:
    inner = rules.sgd(0.1, momentum=0.9)
    return tg.LocalSteps(d.integer(2, 4), inner, keep_state=keep_state)


def _codec(d: Draws) -> tg.Codec:
    return d.choice([tg.TopK(0.3), tg.RandomK(0.3, False), tg.Sign(), tg.Int8()])


def _averaging(d: Draws) -> Any:
    return d.choice(
        [
            tg.Every(push=2),
            tg.BandwidthAware(1.0, on_drop="average"),
            tg.Budget(40.0, direction="push"),
        ]
    )


def _interrupting(d: Draws) -> Any:
    return d.choice([tg.Ringmaster(2, stop=True), tg.Rennala(2, True), tg.Malenia(2, stop=True)])


WRONG_WORK: dict[str, Wrong] = {
    # Works.
    "work": lambda d, w, s: {"work": d.choice([8, "local_steps", tg.LocalSteps, rules.sgd(0.1)])},
    "local steps": lambda d, w, s: {"work": tg.LocalSteps(d.choice(NO_COUNT), rules.sgd(0.1))},
    "micro-batches": lambda d, w, s: {"work": tg.MicroBatches(d.choice(NO_COUNT))},
    "inner that looks ahead": lambda d, w, s: {
        "work": tg.LocalSteps(2, d.choice([rules.dana(0.1), rules.schedule_free(0.1)]))
    },
    "inner that asks for a closure": lambda d, w, s: {"work": tg.LocalSteps(2, torch.optim.LBFGS)},
    "inner for sparse gradients": lambda d, w, s: {
        "work": tg.LocalSteps(2, torch.optim.SparseAdam)
    },
    "inner that is none": lambda d, w, s: {
        "work": unchecked.LocalSteps(2, d.choice([None, 0.1, "adamw", torch.nn.Linear]))
    },
    "local steps, averaged": lambda d, w, s: {
        "work": d.choice([_local(d), tg.MicroBatches(2)]),
        "rule": rules.fasgd(0.01),
        "engine": "auto",
        "link": _averaging(d),
    },
    "state where tensors decide": lambda d, w, s: {
        "work": d.choice([_local(d), HeavyBall()]),
        "rule": rules.fasgd(0.01),
        "engine": "auto",
        "link": tg.Budget(40.0),
    },
    "b_staleness of a state": lambda d, w, s: {
        "work": d.choice([_local(d), HeavyBall()]),
        "evaluation": tg.Evaluation(measures=("b_staleness",)),
    },
    # Codecs.
    "share of the largest": lambda d, w, s: {"link": tg.Full(tg.TopK(d.choice(NO_SHARE)))},
    "share by lot": lambda d, w, s: {"link": tg.Full(tg.RandomK(d.choice(NO_SHARE)))},
    "block": lambda d, w, s: {"link": tg.Full(tg.Int8(d.choice(NO_COUNT)))},
    "codec": lambda d, w, s: {
        "link": unchecked.Full(d.choice([0.01, "top_k", tg.Sign, tg.Full(), None]))
    },
    "codec of a gate": lambda d, w, s: {
        "link": unchecked.Every(1, 2, codec=d.choice([0.01, "top_k", tg.Sign]))
    },
    "codec, budgeted": lambda d, w, s: {
        "rule": rules.fasgd(0.01),
        "engine": "auto",
        "link": tg.Budget(40.0, d.choice(["push", "both"]), codec=_codec(d)),
    },
    "b_staleness of a codec": lambda d, w, s: {
        "link": tg.Full(_codec(d)),
        "evaluation": tg.Evaluation(measures=("b_staleness",)),
    },
    # Policies.
    "ringmaster": lambda d, w, s: {"policy": tg.Ringmaster(d.choice(NO_COUNT))},
    "rennala": lambda d, w, s: {"policy": tg.Rennala(d.choice(NO_COUNT))},
    "malenia": lambda d, w, s: {"policy": tg.Malenia(d.choice(NO_COUNT))},
    "quorum": lambda d, w, s: {"policy": tg.Quorum(d.choice([*NO_COUNT, w + 1]))},
    "grace": lambda d, w, s: {"policy": tg.Quorum(1, d.choice([-1.0, *NO_NUMBER]))},
    "graces": lambda d, w, s: {"policy": tg.Quorum(1, 0.5, grace_deviations=5.0)},
    "weights of a quorum": lambda d, w, s: {"policy": unchecked.Quorum(1, weights="tokens")},
    "size of a buffer": lambda d, w, s: {"policy": tg.SoftSync(size=d.choice(NO_COUNT))},
    "waits for more than there are": lambda d, w, s: {"policy": tg.SoftSync(size=w + 1, wait=True)},
    "rows of a pace": lambda d, w, s: {
        "policy": tg.DyLU(tg.Async(), rows=d.choice(NO_COUNT)),
        "work": _local(d),
    },
    "pace without a clock": lambda d, w, s: {
        "policy": tg.DyLU(tg.Async()),
        "work": _local(d),
        "cluster": tg.Dispatcher(w),
    },
    "pace where tensors decide": lambda d, w, s: {
        "policy": tg.DyLU(tg.Async()),
        "work": _local(d, keep_state=False),
        "rule": rules.fasgd(0.01),
        "engine": "auto",
        "link": tg.Budget(40.0),
    },
    "all of them, who may never come": lambda d, w, s: {
        "policy": tg.Malenia(2),
        "cluster": tg.Dispatcher(w, drawn_factor=1.1),
    },
    "interrupts behind a gate": lambda d, w, s: {
        "policy": _interrupting(d),
        "link": tg.Every(pull=2),
    },
    "interrupts and pulls in part": lambda d, w, s: {
        "policy": tg.PartialPull(_interrupting(d), 0.5)
    },
    "paced interrupts and pulls in part": lambda d, w, s: {
        "policy": tg.PartialPull(tg.DyLU(_interrupting(d)), 0.5),
        "work": _local(d),
    },
    "paced ramp inside": lambda d, w, s: {
        "policy": tg.PartialPull(tg.DyLU(tg.RampUp(tg.Async(), 5)), 0.5),
        "work": _local(d),
    },
    "paced pulls twice": lambda d, w, s: {
        "policy": tg.PartialPull(tg.DyLU(tg.Partial(pull=0.5)), 0.5),
        "work": _local(d),
    },
    # Rules.
    "weights for dana": lambda d, w, s: {
        "policy": d.choice(
            [tg.Quorum(1, weights="samples"), tg.Malenia(2), tg.DyLU(tg.Malenia(2, stop=True))]
        ),
        "rule": d.choice([rules.dana(0.1), rules.dana_sa(0.1), rules.dana_ga(0.1)]),
    },
    "muon over cut tensors": lambda d, w, s: {"rule": rules.muon(0.1), "shards": 4},
    "every of delayed nesterov": lambda d, w, s: {
        "rule": rules.delayed_nesterov(0.1, every=d.choice(NO_COUNT))
    },
    "c of delayed nesterov": lambda d, w, s: {
        "rule": rules.delayed_nesterov(0.1, every=2, c=d.choice([-0.1, 0.6, *NO_NUMBER]))
    },
    "share of fedasync": lambda d, w, s: {
        "rule": unchecked.rules.fedasync(d.choice([1.5, nan, "1", None]))
    },
    "weight of fedasync": lambda d, w, s: {"rule": unchecked.rules.fedasync(0.5, weight=0.5)},
    "workers of delay_adaptive": lambda d, w, s: {
        "rule": rules.delay_adaptive(0.1, workers=d.choice(NO_COUNT))
    },
    "beta of schedule_free": lambda d, w, s: {
        "rule": rules.schedule_free(0.1, beta=d.choice([-0.1, 1.1, *NO_NUMBER]))
    },
    "updates of pipemare": lambda d, w, s: {
        "rule": rules.pipemare(0.1, updates=d.choice([0.0, -1.0, *NO_NUMBER]))
    },
}
