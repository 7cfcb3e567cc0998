"""The candidates of a plan that trains: policies × backups × codecs × rules × rates."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tardigrad.experiment.named_rules import takes_rate
from tardigrad.experiment.spec import RULE, STRUCTURE
from tardigrad.experiment.structure import parameters_of
from tardigrad.links import Codec, Identity, Int8, TopK
from tardigrad.planning.candidates import measuring_quorum
from tardigrad.planning.measure import Measured
from tardigrad.policies import Async, Backup, Deadline, Policy, SoftSync, StaleSynchronous, Sync

MOST = 40
"""Candidates at most."""
FAMILIES = (
    {"sgd", "staleness_aware", "gap_aware", "dana", "dana_sa", "dana_ga", "exponential_penalty"},
    {"adam", "adam_sa", "adam_ga"},
)
"""Rules whose rates mean the same, where nothing is late."""
CORRECTED = (("gap_aware", "staleness_aware"), ("adam_ga", "adam_sa"))
"""Those of each family that correct for lateness, to be tried beside the spec's own."""
INNER = ("sgd", "adam", "adamw")
"""Rules that suit local steps as they are: nothing is late there."""
TENSOR_BY_TENSOR = ("no_decay", "rate_scale")
"""What a server's rule takes, and a worker's own does not."""
LOCAL_STEPS = 8
"""Of a row, where they are tried (**choice**)."""
CODED: tuple[Codec, ...] = (TopK(0.01), Int8())
"""Forms of pushes that are tried, both with error feedback,"""
WORTH_CODING = 0.1
"""where a gradient's bytes take at least so much of a step's mean time (**choice**): with less, as
replies take as long and are not coded, a twelfth of the time at most could be saved."""
KEPT = ("momentum", "nesterov", "betas", "eps", "weight_decay", "no_decay", "rate_scale", "ema")


@dataclass(frozen=True)
class Candidate:
    """What could be run: a policy, a rule and what workers do as a spec's tables. `factor` is of
    the spec's rate."""

    measured: Measured
    rule: Mapping[str, Any]
    factor: float
    workers: int
    work: Mapping[str, Any] | None = None
    """None: one gradient."""

    @property
    def policy(self) -> Policy:
        return self.measured.policy

    @property
    def key(self) -> str:
        """Those that agree in it are the same run."""
        parts = [self.measured.label, self.rule, self.workers]
        return json.dumps([*parts, self.work] if self.work else parts, sort_keys=True)

    @property
    def tuned(self) -> Mapping[str, Any]:
        """The rule that has the spec's rate: the server's, or the one of local steps."""
        return self.work["inner"] if self.work else self.rule

    @property
    def rate(self) -> str:
        rate = self.tuned.get("lr")
        return f"{rate:.3g}" if isinstance(rate, float | int) else f"× {self.factor:.3g}"

    @property
    def label(self) -> str:
        return f"{self.measured.label}, {self.tuned['name']}, lr {self.rate}"


def trained_policies(workers: int, backups: int, deadline_s: float) -> list[Policy]:
    """Policies that are worth training with. `Partial` is not among them: with one shard it is
    `Backup` at another rate, and rates are tried anyhow; `BoundedDelay` is `Async` for most."""
    if workers == 1:
        return [Async()]
    spared = min(max(1, backups), workers - 1)
    more = min(2 * spared, workers // 2)
    backed: list[Policy] = [Backup(b) for b in sorted({spared, max(spared, more)})]
    grouped: list[Policy] = [SoftSync(groups=max(2, workers // 4))] if workers > 3 else []
    return [
        Async(),
        StaleSynchronous(bound=3),
        *grouped,
        Deadline(timeout_s=deadline_s),
        measuring_quorum(workers),
        *backed,
        Sync(),
    ]


def local_policies(workers: int) -> list[Policy]:
    """Those that are trained with local steps too: workers meet less often."""
    return [Async(), Sync()] if workers > 1 else []


def coded_policies(workers: int) -> list[Policy]:
    """Those that are trained with codecs too: who waits for all, and who for nobody."""
    return [Async(), Sync()] if workers > 1 else [Async()]


def offer(
    measured: Sequence[Measured],
    rule: Mapping[str, Any],
    workers: int,
    clip_norm: float | None = None,
) -> list[Candidate]:
    """Every policy with the rules and rates that may suit it, at most `MOST`.

    With n gradients a policy's update is the mean of n, so its rate may be up to n times that of
    one: η, √n η and n η are tried. Late gradients ask for less, or for a rule that corrects: of N
    workers, η/√N, η and √N η are tried with each of the rules, and √N times more with one that
    divides by the staleness (**choices**). Rows of local steps take the spec's rule for the
    worker's own, at η and 2 η, clipped as the spec's gradients are, and are averaged by the server.
    Pushes that are coded are tried with the spec's rule alone.
    """
    out = []
    for one in measured:
        if one.batches > 1:
            out += _of_local_steps(one, rule, workers, clip_norm)
            continue
        late = one.summary.delay.mean
        size = max(1.0, one.summary.gradients_per_update)
        coded = not isinstance(one.codec, Identity)
        for table in _rules(rule, late > 0.5 and not coded):
            out += [
                Candidate(one, scaled(table, factor), factor, workers)
                for factor in _factors(str(table["name"]), size, late)
                if factor == 1 or _has_rate(table)
            ]
    while len(out) > MOST:  # the slowest policy goes, but never the last
        slowest = min(out, key=lambda c: c.measured.summary.gradients_per_s).measured
        out = [candidate for candidate in out if candidate.measured is not slowest]
    return out


def _of_local_steps(
    one: Measured, rule: Mapping[str, Any], workers: int, clip_norm: float | None
) -> list[Candidate]:
    if rule["name"] not in INNER or not _has_rate(rule) or {*TENSOR_BY_TENSOR} & {*rule}:
        return []
    inner = {key: value for key, value in rule.items() if key != "ema"}
    outer = {"name": "sgd", "lr": 1.0, **{key: rule[key] for key in ("ema",) if key in rule}}
    local = {"name": "local_steps", "steps": one.batches}
    if clip_norm is not None:
        local["clip_norm"] = clip_norm
    return [
        Candidate(one, outer, factor, workers, {**local, "inner": scaled(inner, factor)})
        for factor in (1.0, 2.0)
    ]


def scaled(rule: Mapping[str, Any], factor: float) -> dict[str, Any]:
    """The rule at so many times its rate, to two digits."""
    if factor == 1 or not _has_rate(rule):
        return dict(rule)
    return {**rule, "lr": _scaled_rate(rule["lr"], factor)}


def _scaled_rate(rate: Any, factor: float) -> Any:
    if isinstance(rate, Mapping):
        return {k: _scaled_rate(v, factor) if k in RATES_IN else v for k, v in rate.items()}
    return float(f"{rate * factor:.2g}") if isinstance(rate, int | float) else rate


RATES_IN = ("lr", "after", "final")
"""Keys of a rate's table that are rates."""


def _factors(name: str, size: float, late: float) -> list[float]:
    """Of the spec's rate, as told at `offer`."""
    if late <= 0.5:
        return sorted({1.0, size**0.5, size})
    spread = (1 + late) ** 0.5
    more = spread if name in ("staleness_aware", "adam_sa") else 1.0
    return sorted({more / spread, more, more * spread})


def _rules(rule: Mapping[str, Any], late: bool) -> list[dict[str, Any]]:
    """The spec's own; beside it, where gradients are late, the corrected ones of its family."""
    own, name = dict(rule), str(rule["name"])
    out = [own]
    for family, corrected in zip(FAMILIES, CORRECTED, strict=True):
        if late and name in family:
            out += [_like(own, other) for other in corrected if other != name]
    return out


def _like(rule: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Another rule with what the first says, or leaves at its default, of momentum and the like."""
    maker, _ = STRUCTURE.choose(RULE, "rule", dict(rule))
    other, _ = STRUCTURE.choose(RULE, "rule", {"name": name})
    mine, takes = parameters_of(maker, "rule")[0], parameters_of(other, "rule")[0]
    out = {"name": name, **({"lr": rule["lr"]} if "lr" in rule else {})}
    for key in KEPT:
        if key in rule:
            out[key] = rule[key]
        elif key in mine and key in takes and mine[key].default != takes[key].default:
            default = mine[key].default
            out[key] = list(default) if isinstance(default, tuple) else default
    return out


def _has_rate(rule: Mapping[str, Any]) -> bool:
    return "lr" in rule and takes_rate(str(rule["name"]))
