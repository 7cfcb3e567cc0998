"""What each rule costs on top of asynchronous SGD."""

import statistics
from collections.abc import Mapping
from typing import Any

from tardigrad.bench.loops import engine_loop, in_turn, machine, perceptron
from tardigrad.clusters import Gamma
from tardigrad.core.result_table import ResultTable
from tardigrad.engine.fast.build_on_cpu import MOST
from tardigrad.policies import Async
from tardigrad.rules import RULES, Rule, delay_compensated, gap_aware
from tardigrad.scheduling import schedule

BASE = "sgd"
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "exponential_penalty": {"rate": 0.1},
    "delay_adaptive": {"workers": 32},
    "pipemare": {"updates": 1000},
    "delayed_nesterov": {"every": 32},
}
"""What rules must be told beside their rate."""
CATALOGUE: Mapping[str, Rule] = {
    **{name: make(0.001, **NEEDED.get(name, {})) for name, make in RULES.items()},
    "delay_compensated, adaptive": delay_compensated(lr=0.001, adaptive=True),
    "gap_aware, per layer": gap_aware(lr=0.001, per="layer"),
    "gap_aware, global": gap_aware(lr=0.001, per="global"),
}
QUICK = (BASE, "fasgd", "gap_aware", "dana_ga", "gap_aware, per layer")
UPDATES = {"cpu": 500, "cuda": 5000}
"""In a slice of the fast engine, some tens of milliseconds."""
BY_ITSELF = 50
"""In a slice of the exact engine, which does what the fast one cannot."""


def bench_rules(
    device: str = "cpu",
    quick: bool = False,
    workers: int = 32,
    batch_size: int = 8,
    repeats: int = 9,
    updates: int | None = None,
    rules: Mapping[str, Rule] = CATALOGUE,
) -> ResultTable:
    """Every rule on MNIST's perceptron with 32 workers: microseconds per update, over ASGD's.

    ASGD is `sgd`: no momentum, no correction. The fast engine, gamma times, batches of 8. Slices of
    a rule and of ASGD take turns; the ratio is the median over them, each against the slice before
    it. quick: five of the rules.
    """
    if quick:
        rules = {name: rules[name] for name in QUICK}
    updates = updates or UPDATES[device]
    task, cluster, slices = perceptron(batch_size, device), Gamma(workers=workers), repeats + 1
    short = schedule(Async(), cluster, slices * (updates + MOST))
    long = schedule(Async(), cluster, len(rules) * slices * (updates + MOST))
    base = engine_loop(long, task, rules[BASE], "fast")
    rows: list[tuple[str | float, ...]] = []
    for name, rule in rules.items():
        lines: list[str] = []
        loop = engine_loop(short, task, rule, "fast", lines.append)
        by_itself = any(line.startswith("engine: exact") for line in lines)
        made = {"base": updates, "rule": min(updates, BY_ITSELF) if by_itself else updates}
        took = in_turn({"base": base, "rule": loop}, made, repeats, device)
        ratio = statistics.median(a / b for a, b in zip(took["rule"], took["base"], strict=True))
        how = "; ".join(line for line in lines if line != "engine: fast") or "in windows"
        rows.append((name, 1e6 * statistics.median(took["rule"]), ratio, how))
    return ResultTable(
        title=f"{workers} workers, batches of {batch_size}, on {machine(device)}, median of "
        f"{repeats} slices",
        columns=("rule", "µs per update", f"÷ {BASE}", "updates are applied"),
        rows=tuple(rows),
        notes=(
            "in windows: many consecutive updates in one kernel, written from the rule's own code",
        ),
    )
