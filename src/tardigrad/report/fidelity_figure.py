"""Predicted against measured: points near the diagonal are good predictions."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from tardigrad.report.figures import LEGEND, plain_frame

PANEL = (3.8, 3.8)

Pairs = Sequence[tuple[float, float]]
"""(predicted, measured)"""


def fidelity_figure(title: str, panels: Mapping[str, Mapping[str, Pairs]], within: float) -> Figure:
    """A panel for every quantity, in it a colour for every label; the band is ± `within`."""
    figure = Figure(figsize=(PANEL[0] * len(panels) + 1.8, PANEL[1]), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    for number, (quantity, labels) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), number)
        plain_frame(axes, f"{quantity}, predicted", f"{quantity}, measured")
        top = 1.08 * max(max(pair) for pairs in labels.values() for pair in pairs) or 1.0
        axes.plot([0, top], [0, top], color="0.6", linewidth=0.8)
        low, high = [0, (1 - within) * top], [0, (1 + within) * top]
        axes.fill_between([0, top], low, high, color="0.9", linewidth=0)
        for label, pairs in labels.items():
            predicted, measured = zip(*pairs, strict=True)
            axes.plot(predicted, measured, "o", markersize=5, alpha=0.8, label=label)
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
    lines, texts = figure.axes[0].get_legend_handles_labels()
    place: dict[str, Any] = {**LEGEND, "loc": "outside right upper", "fontsize": 9, "title": None}
    figure.legend(lines, texts, **place)
    return figure
