"""What asynchrony brings with gamma-distributed times (Gap-Aware paper, Figure 12b)."""

from collections.abc import Sequence
from pathlib import Path

from tardigrad.clusters import Gamma
from tardigrad.core.result_table import ResultTable
from tardigrad.planning.figures import draw_panels, draw_speedups
from tardigrad.planning.speedup import expected_ratio, speedups

WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)


def gap_aware_speedup(
    folder: Path, workers: Sequence[int] = WORKERS, gradients: int = 100_000, runs: int = 20
) -> ResultTable:
    """Async over Sync in gradients per second against the number of workers, gamma times.

    The paper tells of up to 21% for equal machines (at the N it trained with) and about 6 times for
    different ones.
    """
    alike, different = Gamma(workers=1), Gamma(workers=1, heterogeneous=True)
    homogeneous = speedups(alike, workers, gradients, runs)
    heterogeneous = speedups(different, workers, gradients, runs)
    figure = folder / "async_over_sync.png"
    draw_panels(
        figure,
        "Asynchronous over synchronous, gamma step times",
        lambda axes: draw_speedups(axes, {"equal machines": homogeneous}),
        lambda axes: draw_speedups(axes, {"different machines": heterogeneous}),
    )
    rows = []
    for n, a, b in zip(workers, homogeneous, heterogeneous, strict=True):
        draws = max(20, min(1000, 200_000 // n))
        limit = expected_ratio(alike.sized(n), 1, 200_000 // n)
        limit_different = expected_ratio(different.sized(n), draws)
        rows.append((n, a.ratio, a.deviation, limit, b.ratio, b.deviation, limit_different))
    return ResultTable(
        title=f"Gradients per second, async ÷ sync: {gradients:,} gradients × {runs} runs a point",
        columns=(
            "workers",
            "equal",
            "equal, ± over runs",
            "equal, limit",
            "different",
            "different, ± over runs",
            "different, limit",
        ),
        rows=tuple(rows),
        notes=(
            "equal machines: V_task = V_mach = 0.1; different: V_task = 0.1, V_mach = 0.6",
            "limit: from the step times alone, many draws of the machines and no start, "
            "in which asynchronous workers lose half a step",
        ),
        figures=(figure,),
    )
