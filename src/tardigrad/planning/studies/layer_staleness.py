"""Lower layers are staler (backup-workers paper, Table 1)."""

from itertools import pairwise
from pathlib import Path

import numpy as np

from tardigrad.clusters import Gamma
from tardigrad.core.result_table import ResultTable
from tardigrad.planning.figures import draw_panels, plot_lines
from tardigrad.scheduling.analysis import Distribution, delays_at
from tardigrad.scheduling.layers import LayerTiming, layered_schedule

PAPER = {18: 14.54, 12: 11.35, 11: 19.8, 0: 38.97}
"""Mean staleness by layer of the 18-layer Inception with 40 workers."""

KNOTS = {0: 1.0, 11: 19.8 / 40, 18: 14.54 / 40}
"""Spans fitted to the paper's means; layer 12's 11.35 is left out, because layers nested in one
another cannot have one in the middle fresher than the top."""


def layer_staleness(
    folder: Path, workers: int = 40, layers: int = 18, updates: int = 20_000
) -> ResultTable:
    """Mean delay of every layer, read on the way up and pushed on the way down.

    Once with layers that all take equally long, once with spans fitted to the published means.
    """
    even = LayerTiming.even(layers)
    numbers = np.arange(19)  # the paper numbers 18 layers from 0 to 18
    fitted = LayerTiming(
        tuple(float(s) for s in np.interp(numbers, list(KNOTS), list(KNOTS.values())))
    )
    cluster = Gamma(workers=workers)
    measured = [
        [Distribution.of(delays_at(made, layer)) for layer in range(made.shards)]
        for made in (layered_schedule(cluster, timing, updates) for timing in (even, fitted))
    ]
    rows = []
    for layer in range(18, -1, -1):
        own = measured[0][layer] if layer < layers else None
        like = measured[1][layer]
        rows.append(
            (
                layer,
                workers * even.spans[layer] if own else None,
                own.mean if own else None,
                workers * fitted.spans[layer],
                like.mean,
                like.deviation,
                PAPER.get(layer),
            )
        )
    figure = folder / "layer_staleness.png"
    paper = sorted(PAPER.items())
    draw_panels(
        figure,
        f"Delay by layer, {workers} asynchronous workers",
        lambda axes: plot_lines(
            axes,
            "layer (0 = bottom)",
            "mean delay (updates)",
            {
                "layers equally long": (range(layers), [s.mean for s in measured[0]]),
                "spans fitted": (range(19), [s.mean for s in measured[1]]),
            },
            points={"published": ([a for a, _ in paper], [b for _, b in paper])},
        ),
    )
    falls = all(a.mean >= b.mean for a, b in pairwise(measured[0]))
    return ResultTable(
        title=f"Delay by layer: {workers} workers, {layers} layers, {updates:,} updates each",
        columns=(
            "layer",
            "N × span, equal",
            "mean delay, equal",
            "N × span, fitted",
            "mean delay, fitted",
            "σ, fitted",
            "published",
        ),
        rows=tuple(rows),
        notes=(
            "span: the share of the iteration between a layer's read and its push",
            f"layers equally long, f = 1/3 forward; staler downwards throughout: {falls}",
            "fitted: spans at layers 0, 11 and 18 from the published means, straight between them; "
            "12 (11.35) cannot be fresher than 18 where layers are nested",
        ),
        figures=(figure,),
    )
