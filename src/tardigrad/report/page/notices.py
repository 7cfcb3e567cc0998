"""What to notice on a page, in three sentences."""

import math
from collections.abc import Sequence

from tardigrad.report.clocks import clock_of, time_text
from tardigrad.report.page.contents import PageRun
from tardigrad.report.series import first_below, metric_of
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.analysis import Summary


def notices(runs: Sequence[PageRun]) -> list[str]:
    """Of one run who waits, who is late and what came of it; of several, waiting and lateness of
    the first two that have schedules, and who was sooner at the loss that all of them reached."""
    seen = [(one.label, one.schedule) for one in runs if one.schedule is not None]
    if not seen:
        return []
    if len(runs) == 1:
        ((_, schedule),) = seen
        facts = Summary.of(schedule)
        waiting = f"{_waiting(facts).capitalize()}."
        return [waiting, f"{_lateness(facts).capitalize()}.", *_progress(runs[0])]
    told = [_both(label, schedule) for label, schedule in seen[:2]]
    return [*told, *_sooner(runs)]


def _both(label: str, schedule: Schedule) -> str:
    facts = Summary.of(schedule)
    return f"{label}: {_waiting(facts)}; {_lateness(facts)}."


def _waiting(facts: Summary) -> str:
    if facts.waiting < 0.005:
        return "workers never wait"
    return f"workers wait for {facts.waiting:.0%} of their time, left empty in the timeline"


def _lateness(facts: Summary) -> str:
    dropped = facts.dropped - facts.interrupted
    lost = f", and {dropped:.1%} of all are dropped" if dropped > 0 else ""
    lost += f", and {facts.interrupted:.1%} of all are interrupted" if facts.interrupted else ""
    if not facts.delay.count:
        return f"no gradient is applied{lost}"
    if facts.delay.most == 0:
        size = facts.gradients_per_update
        each = f", {size:.0f} of one version make each update" if size >= 1.5 else ""
        return f"no gradient is late{each}{lost}"
    return (
        f"gradients are {facts.delay.mean:.1f} updates late on average and "
        f"{facts.delay.most:.0f} at most, that many being applied between pull and push{lost}"
    )


def _progress(one: PageRun) -> list[str]:
    if one.series.diverged:
        what, _, _ = one.series.summaries[0]["why"].partition(":")
        return [f"The run has diverged: {what}."]
    metric = metric_of([one.series])
    values = [r[metric] for r in one.records if metric in r] if metric else []
    if len(values) < 2 or metric is None:
        return []
    took, clock = one.series.mean("time_s"), clock_of(one.series.summaries)
    return [
        f"The {_words(metric)} goes from {values[0]:.3g} to {values[-1]:.3g} in "
        f"{time_text(took)} {clock.unit} of {clock.time}."
    ]


def _sooner(runs: Sequence[PageRun]) -> list[str]:
    """Who was first, and who last, at the highest loss at which one of them ended."""
    metric = metric_of([one.series for one in runs])
    if metric is None:
        return []
    ended = [one for one in runs if any(map(math.isfinite, one.series.final(metric)))]
    if len(ended) < 2:
        return []
    worst = max(one.series.finished[0][-1][metric] for one in ended)
    times = [(first_below(one.series.finished[0], metric, worst), one.label) for one in ended]
    reached = sorted((at, label) for at, label in times if at is not None)
    unit = clock_of(facts for one in ended for facts in one.series.summaries).unit
    (first, soonest), (last, latest) = reached[0], reached[-1]
    return [
        f"{'Both' if len(ended) == 2 else f'All {len(ended)}'} reach a {_words(metric)} of "
        f"{worst:.3g}: {soonest} first, after {time_text(first)} {unit}, {latest} last, after "
        f"{time_text(last)} {unit}."
    ]


def _words(metric: str) -> str:
    return metric.replace("_", " ")
