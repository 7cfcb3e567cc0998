"""Time to the target against what it costs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tardigrad.core.arrays import Floats
from tardigrad.planning.answer import TargetResults
from tardigrad.planning.entrants import Entrant
from tardigrad.planning.figures import COLOURS, finish_axes

SHOWN = 12
KINDS = ("Async", "StaleSynchronous", "SoftSync", "Deadline", "Backup", "Sync", "Quorum")


def answer_figure(answer: TargetResults, title: str) -> Figure:
    """With one number of workers cost is time, and stands on the upper axis; with several, time
    against cost, a point a candidate. The winner is marked."""
    several = len(answer.sizes) > 1
    lines = min(SHOWN, len(answer.entrants()))
    figure = Figure(figsize=(8.4, 5.2 if several else 1.8 + 0.36 * lines), layout="constrained")
    axes = figure.subplots()
    if several:
        draw_time_and_cost(axes, answer)
    else:
        draw_times(axes, answer)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure


def draw_times(axes: Axes, answer: TargetResults) -> None:
    """A line per candidate, the fastest on top: each seed a dot, the mean a bar."""
    shown = answer.entrants()[:SHOWN]
    winner = answer.winner
    for place, entrant in enumerate(shown):
        colour = _colour(entrant)
        times = [point.time_s for point in entrant.reached]
        alpha = 0.35 if answer.pale(entrant) else 0.9
        axes.barh(place, entrant.mean_s, height=0.62, color=colour, alpha=alpha)
        axes.plot(times, [place] * len(times), "o", color="black", markersize=3, alpha=0.6)
        if entrant is winner:
            axes.annotate(
                "  winner", (max(times), place), va="center", fontweight="bold", fontsize=10
            )
    axes.set_yticks(range(len(shown)), [entrant.candidate.label for entrant in shown])
    for tick, entrant in zip(axes.get_yticklabels(), shown, strict=True):
        tick.set_fontweight("bold" if entrant is winner else "normal")
    axes.invert_yaxis()
    most = max(point.time_s for entrant in shown for point in entrant.reached)
    axes.set_xlim(0, 1.15 * most)
    finish_axes(
        axes, f"virtual seconds to {answer.target} (dots: seeds; pale: shown to be slower)", ""
    )
    per_s = answer.cost(winner, 1.0)

    def cost(seconds: npt.ArrayLike) -> Floats:
        return np.asarray(seconds, dtype=np.float64) * per_s

    def seconds(cost: npt.ArrayLike) -> Floats:
        return np.asarray(cost, dtype=np.float64) / per_s

    above = axes.secondary_xaxis("top", functions=(cost, seconds))
    above.set_xlabel(f"{answer.cost_name} of {winner.candidate.workers} workers")


def draw_time_and_cost(axes: Axes, answer: TargetResults) -> None:
    """A point per candidate that reached the target, pale where it was shown to be slower or
    misses it with a seed; a shape per number of workers, and a line from winner to winner."""
    shapes = "os^Dv<>P*X"
    for one, shape in zip(answer.sizes, shapes, strict=False):
        entrants = [e for e in one.race.entrants if e.reached]
        for entrant in entrants:
            axes.errorbar(
                entrant.mean_s,
                answer.cost(entrant),
                xerr=None if answer.pale(entrant) else _spread(entrant),
                fmt=shape,
                color=_colour(entrant),
                markersize=7,
                capsize=2,
                alpha=0.25 if answer.pale(entrant) else 0.9,
            )
        axes.plot([], [], shape, color="grey", label=f"{one.cluster.workers} workers")
    winners = [e for one in answer.sizes for e in one.race.entrants[:1] if not answer.pale(e)]
    axes.plot(
        [e.mean_s for e in winners], [answer.cost(e) for e in winners], color="grey", zorder=0
    )
    for kind in dict.fromkeys(_kind(e) for e in answer.entrants()):
        axes.plot([], [], "-", color=_colour_of(kind), linewidth=6, label=kind)
    _mark(axes, answer, answer.winner, "fastest", below=True)
    if answer.cheapest is not answer.winner:
        _mark(axes, answer, answer.cheapest, "cheapest", below=False)
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    finish_axes(axes, f"virtual seconds to {answer.target}", answer.cost_name)
    axes.plot([], [], "o", color="grey", alpha=0.25, label="slower, or missed\nwith some seeds")
    axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _mark(axes: Axes, answer: TargetResults, entrant: Entrant, word: str, below: bool) -> None:
    """One below its point and one above: the two may be close."""
    where = (entrant.mean_s, answer.cost(entrant))
    axes.plot(*where, "o", markersize=16, markerfacecolor="none", color="black")
    axes.annotate(
        f"{word}: {entrant.candidate.label}",
        where,
        xytext=(12, -14 if below else 10),
        textcoords="offset points",
        fontweight="bold",
        fontsize=9,
    )


def _spread(entrant: Entrant) -> Sequence[float] | None:
    return [entrant.spread_s] if len(entrant.reached) > 1 else None


def _kind(entrant: Entrant) -> str:
    return type(entrant.candidate.policy).__name__


def _colour(entrant: Entrant) -> str:
    return _colour_of(_kind(entrant))


def _colour_of(kind: str) -> str:
    return COLOURS[KINDS.index(kind)] if kind in KINDS else "grey"
