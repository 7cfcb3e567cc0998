"""Three measures of how stale a gradient was, beside each other: delay, gap, B-staleness.

Delay counts the updates since its view, the gap is how far θ has moved, B-staleness how much the
gradient itself has changed. The first two are what rules can know; the third is what matters, and
only a simulator can compute it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tardigrad.core.arrays import Floats

LABELS = {
    "delay": "delay (updates)",
    "gap": "gap (root mean square of θ − view)",
    "b_staleness": "B-staleness ‖g(view) − g(θ)‖",
}
SHOWN = 5000
"""Points in a panel; of more, evenly spaced ones."""


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing their mean rank; NaN where one
    of them never varies."""
    ranks = [_ranks(np.asarray(values, dtype=np.float64)) for values in (a, b)]
    if any(r.std() == 0 for r in ranks):
        return float("nan")
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def draw_staleness(measured: Mapping[str, Sequence[float]], path: Path, title: str) -> bool:
    """Every pair of measures in a panel of its own; False where there are fewer than two.

    `measured`: by name, one value per applied gradient, in the same order.
    """
    names = [name for name in LABELS if name in measured]
    pairs = [(x, y) for i, x in enumerate(names) for y in names[i + 1 :]]
    if not pairs:
        return False
    figure = Figure(figsize=(5.0 * len(pairs), 4.4), layout="constrained")
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    for axes, (x, y) in zip(panels, pairs, strict=True):
        _scatter(axes, np.asarray(measured[x]), np.asarray(measured[y]))
        axes.set_xlabel(LABELS[x])
        axes.set_ylabel(LABELS[y])
        found = rank_correlation(measured[x], measured[y])
        axes.set_title(f"rank correlation {found:.2f}", loc="left", fontsize=10)
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    figure.savefig(path, dpi=120)
    return True


def _scatter(axes: Axes, x: Floats, y: Floats) -> None:
    """The gradients as points, and the median along x."""
    every = max(1, len(x) // SHOWN)
    axes.plot(x[::every], y[::every], ".", color="#56B4E9", markersize=3, alpha=0.35)
    # Groups of about equal size along x; a whole-numbered x is not divided within one value.
    edges = np.unique(np.quantile(x, np.linspace(0, 1, 13)))
    group = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, max(len(edges) - 2, 0))
    filled = np.unique(group)
    middle = [float(np.median(x[group == g])) for g in filled]
    median = [float(np.median(y[group == g])) for g in filled]
    axes.plot(middle, median, "-o", color="#D55E00", markersize=4, label="median")
    axes.set_xlim(0, float(np.quantile(x, 0.995)) * 1.05 or 1.0)
    axes.set_ylim(0, float(np.quantile(y, 0.995)) * 1.05 or 1.0)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper right")


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], dtype=np.float64)
