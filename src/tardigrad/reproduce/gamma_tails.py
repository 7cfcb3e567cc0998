"""How often a step takes 1.25 times the mean with gamma times (Gap-Aware paper, Figure 3)."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tardigrad.clusters import Gamma
from tardigrad.core.result_table import ResultTable
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.drawing import panels, written
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study, StudyCell

PUBLISHED = {"equal": 0.01, "different": 0.279}
EDGES = np.linspace(0, 4, 81)


def tail(folder: Path, different: bool, machines: int, steps: int) -> dict[str, Any]:
    """The share of steps over 1.25 times the mean: of the realised mean where machines are equal
    (as the figure has it), of the common mean where they differ; and the distribution."""
    numbers, late, counts, pooled = np.arange(steps)[None, :], [], np.zeros(len(EDGES) - 1), []
    clusters = 50
    for seed in range(clusters):
        cluster = Gamma(workers=machines, heterogeneous=different, mean_s=1.0)
        times = cluster.realise(seed).step_s(np.arange(machines)[:, None], numbers)
        mean = 1.0 if different else float(times.mean())
        late.append(float((times > 1.25 * mean).mean()))
        pooled.append(float((times > 1.25).mean()))
        counts += np.histogram(times / mean, EDGES)[0]
    density = counts / counts.sum() / np.diff(EDGES)
    return {
        "share": float(np.mean(late)),
        "pooled": float(np.mean(pooled)),
        "density": [round(float(d), 5) for d in density],
    }


def _cells(machines: int) -> list[StudyCell]:
    return [
        StudyCell(
            kind, {"different": kind == "different", "machines": machines, "steps": 100}, tail
        )
        for kind in PUBLISHED
    ]


def _table(found: FoundCells) -> ResultTable:
    return ResultTable(
        "Gap-Aware paper, Figure 3: steps of at least 1.25 times the mean",
        ("machines", "ours", "published", "all clusters pooled"),
        tuple(
            (
                kind,
                "empty" if found.value(kind, "share") is None else found.value(kind, "share"),
                share,
                found.value(kind, "pooled"),
            )
            for kind, share in PUBLISHED.items()
        ),
        ("of equal machines the mean is the drawn cluster's own; pooled, against the common",),
    )


def judge_tails(found: FoundCells) -> Verdict:
    """Both shares round to the published ones, to a tenth of them."""
    ours = {kind: found.value(kind, "share") for kind in PUBLISHED}
    known = {kind: share for kind, share in ours.items() if share is not None}
    if len(known) < len(PUBLISHED):
        return NOT_YET
    told = ", ".join(f"{kind} {100 * share:.2f}%" for kind, share in known.items())
    wrong = [kind for kind, share in known.items() if abs(share / PUBLISHED[kind] - 1) > 0.1]
    if wrong:
        return Verdict("does not hold", told, f"{' and '.join(wrong)} differ by over a tenth")
    return Verdict("holds", told)


def _draw(found: FoundCells, folder: Path) -> list[Path]:
    figure, grid = panels(2, "Gamma step times over their mean")
    middle = (EDGES[:-1] + EDGES[1:]) / 2
    for axes, kind in zip(grid, PUBLISHED, strict=True):
        cell = found.cells.get(kind)
        if cell is not None:
            density = np.array(cell.figures["density"])
            axes.plot(middle, density, color="#0072B2")
            axes.fill_between(middle, density, where=middle >= 1.25, color="#D55E00", alpha=0.5)
            axes.set_title(f"{kind} machines: {cell.figures['share']:.1%} over 1.25", fontsize=10)
        axes.set_xlabel("step time ÷ mean")
        axes.set_ylabel("density")
    return [written(figure, folder / "gamma-tails.png")]


tails = Study(
    "gamma-tails",
    "Gap-Aware's Figure 3: the tails of gamma step times",
    partial(_cells, 2000),
    list,
    _table,
    _draw,
)
