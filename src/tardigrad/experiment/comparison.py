"""Several experiments side by side: same schedule, same batches, what differs is what is compared.

Randomness is keyed, so that entries with the same cluster and seed meet the same step times, and
with the same task the same batches, whatever else differs between them.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tardigrad.core.checks import require
from tardigrad.core.used_code import used_code
from tardigrad.engine import Diverged
from tardigrad.engine.drive import drive
from tardigrad.engine.observer import Watch
from tardigrad.engine.result_files import schedule_facts, summarise
from tardigrad.experiment.spec import RULE, STRUCTURE, Spec, changed
from tardigrad.experiment.structure import Plain, parameters_of
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task

KEPT = ("lr", "weight_decay", "ema", "clip_norm", "no_decay")
"""What a compared rule takes over from the spec's rule unless it says its own."""


class Entry(NamedTuple):
    """One line of a comparison."""

    label: str
    spec: Spec


class Outcome(NamedTuple):
    """What one entry came to with one seed; in a sweep, what its point sets."""

    label: str
    seed: int
    records: list[dict[str, float]]
    summary: dict[str, Any]
    point: Mapping[str, Plain] = {}


BeginEntry = Callable[[Entry, int, Schedule | None], Watch | None]
"""Told of each execution before it starts; returns who watches it."""


def entries(spec: Spec, rules: str) -> list[Entry]:
    """The spec with each of the rules in text such as "sgd,fasgd:lr=0.005,my_rule.py:mine:lr=0.1".

    Commas part rules; colons part a rule's name and its options. An option holds =: so what follows
    the first colon without = belongs to the name, unless a rule's name stands before it.
    """
    out = []
    for text in split(rules, ","):
        name, *options = split(text, ":")
        if options and "=" not in options[0] and name not in RULE.makers:
            name = f"{name}:{options.pop(0)}"
        rule: dict[str, Plain] = {"name": name}
        kept = [key for key in KEPT if key in spec.rule and (key != "lr" or takes_rate(name))]
        rule |= {key: spec.rule[key] for key in kept}
        out.append(Entry(text, replace(spec, rule=changed(rule, options))))
    labels = [entry.label for entry in out]
    require(bool(out), "rules is empty: name some, such as --rules sgd,fasgd:lr=0.005")
    for label in labels:
        require(labels.count(label) == 1, f"rules names {label!r} twice")
    return out


def takes_rate(name: str) -> bool:
    """Whether a rule takes lr; one of the user's own may have its rate inside."""
    maker, _ = STRUCTURE.choose(RULE, "rule", name)
    taken, takes_any = parameters_of(maker, "rule")
    return takes_any or "lr" in taken


def outcomes(
    compared: Sequence[Entry], seeds: int = 1, begin: BeginEntry | None = None
) -> Iterator[Outcome]:
    """Execute every entry with `seeds` seeds, counting up from its own; outcomes as they come."""
    require(seeds >= 1, f"seeds must be at least 1, got {seeds}")
    schedules: dict[str, Schedule | None] = {}
    tasks: dict[str, Task] = {}
    for offset in range(seeds):
        for label, spec in compared:
            spec = replace(spec, seed=spec.seed + offset)
            control = control_of(spec)
            if control not in schedules:
                schedules[control] = spec.make_schedule()
            learned = learned_of(spec)
            if learned not in tasks:
                tasks[learned] = spec.make_task()
            watch = begin(Entry(label, spec), spec.seed, schedules[control]) if begin else None
            yield outcome_of(label, spec, schedules[control], tasks[learned], watch)
        tasks.clear()
        schedules.clear()


def outcome_of(
    label: str, spec: Spec, schedule: Schedule | None, task: Task, watch: Watch | None
) -> Outcome:
    """Execute one entry; one that diverges has no records and a summary that says why."""
    started = time.perf_counter()
    execution = spec.prepare(schedule, task, spec.make_rule())
    try:
        run = drive(execution, spec.evaluation, watch=watch, stop=spec.make_stop())
    except Diverged as diverged:
        return diverged_outcome(label, spec.seed, diverged, execution.schedule)
    summary = summarise(run, time.perf_counter() - started)
    if own := own_digests(task, execution.rule):
        summary["own_code"] = own
    return Outcome(label, spec.seed, run.history.records, summary)


def own_digests(*parts: object) -> dict[str, str]:
    """Of the user's own files that the parts are made of."""
    found = used_code(*parts)
    return {n: d for n, d in found.items() if n.endswith(".py") and not n.startswith("tardigrad/")}


def diverged_outcome(label: str, seed: int, diverged: Diverged, schedule: Schedule) -> Outcome:
    facts = schedule_facts(schedule)
    summary = {"status": "diverged", "why": str(diverged), "at": diverged.update, **facts}
    return Outcome(label, seed, [], summary)


def control_of(spec: Spec) -> str:
    """What a spec's schedule depends on: specs that agree in it share one."""
    return _key(spec, "policy", "cluster", "link", "updates", "seed", "shards")


def learned_of(spec: Spec) -> str:
    """What a spec's task depends on: specs that agree in it share one."""
    return _key(spec, "task", "cluster", "seed")


def _key(spec: Spec, *names: str) -> str:
    data = spec.data()
    return json.dumps([data[name] for name in names], sort_keys=True)


def split(text: str, by: str) -> list[str]:
    """Split at `by`, but not inside brackets, which are lists and tables, nor inside quotes."""
    parts, depth, quote, before = [""], 0, "", "="
    for letter in text:
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and before in "=[{, ":  # elsewhere it is an apostrophe
            quote = letter
        else:
            depth += (letter in "[{") - (letter in "]}")
        before = letter
        if letter == by and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]
