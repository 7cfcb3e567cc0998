"""Random works and codecs that fit the rest of a case."""

from dataclasses import dataclass, replace
from typing import Any

import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.links import Link
from tardigrad.rules import rates
from tardigrad.work import AnyWork, OneGradient
from tests.fuzz.fuzz_draws import Draws
from tests.work.heavy_ball import HeavyBall

INNER = {
    "sgd": "rules.sgd({lr})",
    "momentum": "rules.sgd({lr}, momentum=0.6, nesterov=True)",
    "adamw": "rules.adamw({lr}, betas=(0.5, 0.9))",
    "falling": "rules.rmsprop(rates.StepRate({lr}, (10.0, 30.0), 0.3), momentum=0.6)",
    "muon": "rules.muon({lr}, precision='full')",
    "torch": "rules.torch_optimizer(torch.optim.Adamax, {lr})",
    "torch at its own rate": "torch.optim.AdamW",
}
"""Rules of local steps."""


@dataclass(frozen=True)
class WorkDraw:
    """What makes a work, and what it is called."""

    name: str = "gradient"
    text: str = "None"
    """As Python."""

    def make(self) -> AnyWork:
        """What the text says, so that what is printed is what ran."""
        names = {"rules": rules, "rates": rates, "replace": replace, "torch": torch, "tg": tg}
        made: AnyWork | None = eval(self.text, names | {"HeavyBall": HeavyBall})
        return made or OneGradient()


def draw_work(seed: int, link: Link, measures: tuple[str, ...]) -> WorkDraw:
    """In a fifth of the cases another than one gradient, as far as link and measures allow it; some
    clip."""
    draw, clip = Draws(seed, "work"), Draws(seed, "clip_norm")
    clip_norm = clip.choice([0.5, 5.0]) if clip.chance(0.15) else None
    if not draw.chance(0.2):
        return WorkDraw(text=f"tg.OneGradient({clip_norm})")
    stateless = link.reads_deviation or "b_staleness" in measures
    one_batch = link.withholds_pushes and link.on_drop == "average"
    kind = draw.choice(["local steps", "local steps", "local steps", "micro-batches", "heavy ball"])
    size = 1 if one_batch else draw.choice([1, 2, 3, 5])
    inner, lr = draw.choice(list(INNER)), draw.log_uniform(0.002, 0.05)
    keep_state = draw.chance(0.7) and not stateless
    if kind == "heavy ball" and not stateless:
        return WorkDraw(kind, "HeavyBall()")
    if kind == "micro-batches":
        return WorkDraw(kind, f"tg.MicroBatches({size}, {clip_norm})")
    made = INNER[inner].format(lr=lr)
    local = f"tg.LocalSteps({size}, {made}, {keep_state}, {clip_norm})"
    return WorkDraw(f"local {inner}", local)


def with_codec(seed: int, link: Link, measures: tuple[str, ...]) -> Link:
    """In a fifth of the cases the link with a codec, as far as it and measures allow one."""
    draw = Draws(seed, "codec")
    budgets_pushes = isinstance(link, tg.Budget) and link.direction != "pull"
    if not draw.chance(0.2) or budgets_pushes or "b_staleness" in measures:
        return link
    error_feedback, share = draw.chance(0.65), draw.choice([0.05, 0.3, 1.0])
    codecs: list[tg.Codec] = [
        tg.TopK(share, error_feedback),
        tg.RandomK(share, error_feedback, seed=draw.integer(0, 9)),
        tg.Sign(error_feedback),
        tg.Int8(draw.choice([2, 1024]), error_feedback),
    ]
    coded: Any = link
    made: Link = replace(coded, codec=draw.choice(codecs))
    return made
