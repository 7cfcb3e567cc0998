"""Rates, found in the same way for all: each method's best of one grid, with one budget."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from tardigrad.reproduce.kept_cells import FoundCells, KeptCell

Score = Callable[[KeptCell], float]
"""Of one run, the lower the better; infinite where it failed."""


def at_rate(stem: str, rate: float) -> str:
    """Cells of that rate: "STEM/lr=0.1", and then "/seed=0" and so on."""
    return f"{stem}/lr={rate:g}"


def best_at(
    found: FoundCells,
    stem: str,
    rates: Sequence[float],
    score: Score,
    otherwise: Score | None = None,
) -> str | None:
    """The rate's stem with the lowest mean score over seeds; None where no cell is there.

    Where several are alike, as where all have failed, by `otherwise`, and then the smallest rate.
    """
    scored = {}
    for rate in sorted(rates):
        cells = found.matching(f"{at_rate(stem, rate)}/seed=*")
        if cells:
            scores = (score, otherwise) if otherwise else (score,)
            scored[at_rate(stem, rate)] = [statistics.fmean(map(one, cells)) for one in scores]
    return min(scored, key=lambda one: scored[one]) if scored else None


def rate_of(stem: str | None) -> float | None:
    return None if stem is None else float(stem.rpartition("lr=")[2])


def edges(found: FoundCells, stems: Iterable[str | None], rates: Sequence[float]) -> str:
    """Which of the best rates are at an edge of the grid, so that one outside of it might have been
    better; nothing where none is, and of a quick form, which has no grid."""
    if found.quick:
        return ""
    there = [stem for stem in stems if rate_of(stem) in (min(rates), max(rates))]
    return f"at an edge of the grid: {', '.join(map(str, there))}" if there else ""


def last(figure: str, highest: bool = False) -> Score:
    """The figure's last value, for `best`."""

    def score(cell: KeptCell) -> float:
        if cell.diverged or figure not in cell.figures:
            return math.inf
        value = float(cell.figures[figure])
        return -value if highest else value

    return score


def first_reaching(figure: str, target: float, x: str = "time_s", highest: bool = False) -> Score:
    """Where along x a run's evaluations first reach the target: infinite where none does."""

    def score(cell: KeptCell) -> float:
        for record in cell.records:
            value = record.get(figure, math.inf if not highest else -math.inf)
            if (value >= target) if highest else (value <= target):
                return float(record[x])
        return math.inf

    return score


def told(found: FoundCells, stem: str | None, score: Score, digits: int = 0) -> str:
    """Mean ± deviation over seeds of a score; of how many, where some never came there."""
    cells = [] if stem is None else found.matching(f"{stem}/seed=*")
    if not cells:
        return "empty"
    came = [one for one in map(score, cells) if math.isfinite(one)]
    if not came:
        return "never"
    words = f"{statistics.fmean(came):,.{digits}f}"
    if len(came) > 1:
        words += f" ± {statistics.stdev(came):,.{digits}f}"
    return words + ("" if len(came) == len(cells) else f" ({len(came)} of {len(cells)})")


def mean_score(found: FoundCells, stem: str | None, score: Score) -> float:
    """Infinite where a seed failed or nothing is there."""
    cells = [] if stem is None else found.matching(f"{stem}/seed=*")
    return statistics.fmean(map(score, cells)) if cells else math.inf
