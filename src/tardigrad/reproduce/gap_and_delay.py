"""The gap of Gap-Aware and DANA-GA beside the delay, along the run (Gap-Aware paper, Figure 4).

The paper's gap is G, what a gradient is divided by; what SA divides by is the staleness τ. Both
are means over the gradients of a twentieth of the run, G over the parameters too.
"""

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from tardigrad.core.layout import Layout
from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.engine import simulate
from tardigrad.experiment import Spec
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.drawing import COLOURS, legend, panels, written
from tardigrad.reproduce.gap_aware_tables import GPU, RULES, TABLE_4, small_spec, spec_of
from tardigrad.reproduce.kept_cells import FoundCells
from tardigrad.reproduce.study import Study, StudyCell
from tardigrad.rules import Now, Push
from tardigrad.rules.gap import Gap, GapState

PARTS = 20
NAMES = ("GA", "DANA-GA")


def gap_and_delay(folder: Path, spec: dict[str, Plain]) -> dict[str, Any]:
    """Run it with the exact engine, which calls the rule gradient by gradient; no evaluations."""
    asked = Spec.of(spec)
    seen: list[float] = []

    class WatchedGap(Gap):
        def gap(
            self, theta: Tensor, state: GapState, push: Push, now: Now, layout: Layout
        ) -> Tensor:
            found = super().gap(theta, state, push, now, layout)
            seen.append(float(found.mean()))
            return found

    rule = asked.make_rule()
    gap = rule.correction
    assert isinstance(gap, Gap)
    said = {field.name: getattr(gap, field.name) for field in fields(gap)}
    run = simulate(
        asked.make_task(),
        replace(rule, correction=WatchedGap(**said)),
        cluster=asked.make_cluster(),
        updates=asked.updates,
        seed=asked.seed,
        engine="exact",
        evaluation=0,
    )
    staleness = np.asarray(run.schedule.delays, dtype=float) + 1

    def parts(values: Any) -> list[float]:
        return [round(float(part.mean()), 4) for part in np.array_split(np.asarray(values), PARTS)]

    return {"gap": parts(seen), "staleness": parts(staleness)}


def _cells(quick: bool) -> Iterator[StudyCell]:
    for workers in (32, 8) if quick else (32, 24, 16, 8, 4):
        for name in NAMES:
            made = partial(small_spec if quick else partial(spec_of, TABLE_4), RULES[name])
            asks: dict[str, Plain] = {"spec": made(workers, 0)}
            yield StudyCell(f"N={workers}/{name}/seed=0", asks, gap_and_delay)


def _numbers(found: FoundCells) -> list[str]:
    return list(dict.fromkeys(name.split("/")[0] for name in found.planned))


def _table(found: FoundCells) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for number in _numbers(found):
        for name in NAMES:
            cell = found.cells.get(f"{number}/{name}/seed=0")
            if cell is None:
                rows.append((number, name, "empty", None, None, None))
                continue
            gap, late = cell.figures["gap"], cell.figures["staleness"]
            rows.append((number, name, *map(float, (np.mean(gap), gap[-1])), np.mean(late), None))
            rows[-1] = (*rows[-1][:5], "yes" if _below(gap, late) else "no")
    return ResultTable(
        "Gap-Aware paper, Figure 4: the mean gap beside the mean delay",
        ("workers", "rule", "gap", "gap at the end", "τ", "always below"),
        tuple(rows),
        ("published as curves: the gap is constantly lower than the delay",),
        keys=2,
    )


def _below(gap: list[float], late: list[float]) -> bool:
    return all(g < t for g, t in zip(gap[1:], late[1:], strict=True))


def judge_gap(found: FoundCells) -> Verdict:
    """From the second part on the gap is below τ, and DANA-GA's below Gap-Aware's on average."""
    told, wrong = [], []
    for number in _numbers(found):
        cells = [found.cells.get(f"{number}/{name}/seed=0") for name in NAMES]
        known = [cell.figures for cell in cells if cell is not None]
        if len(known) < len(NAMES):
            continue
        means = [float(np.mean(one["gap"])) for one in known]
        late = float(np.mean(known[0]["staleness"]))
        told.append(f"{number}: τ {late:.1f}, GA {means[0]:.2f}, DANA-GA {means[1]:.2f}")
        for name, one in zip(NAMES, known, strict=True):
            if not _below(one["gap"], one["staleness"]):
                wrong.append(f"{name}'s gap is not always below τ at {number}")
        if means[1] >= means[0]:
            wrong.append(f"DANA-GA's gap is not the smaller at {number}")
    if not told:
        return NOT_YET
    return Verdict("does not hold" if wrong else "holds", "; ".join(told), "; ".join(wrong))


def _draw(found: FoundCells, folder: Path) -> list[Path]:
    form = " (quick form)" if found.quick else ""
    figure, grid = panels(3, f"Gap and staleness along the run{form}")
    shares = [(i + 0.5) / PARTS for i in range(PARTS)]
    for number, colour in zip(_numbers(found), COLOURS, strict=False):
        for axes, name in zip(grid[:2], reversed(NAMES), strict=True):
            cell = found.cells.get(f"{number}/{name}/seed=0")
            if cell is not None:
                axes.plot(shares, cell.figures["gap"], color=colour, label=number)
                late = cell.figures["staleness"]
                if name == "GA":
                    grid[2].plot(shares, late, color=colour, label=number)
    high = max((axes.get_ylim()[1] for axes in grid), default=1)
    for axes, title in zip(grid, ("DANA-GA: gap", "GA: gap", "staleness τ"), strict=True):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("share of the run")
        axes.set_ylabel("updates")
        axes.set_ylim(0, high)
        legend(axes)
    return [written(figure, folder / "gap-and-delay.png")]


gap_along = Study(
    "gap-and-delay",
    "Gap-Aware's Figure 4: the gap of GA and DANA-GA beside the delay",
    lambda: list(_cells(False)),
    lambda: list(_cells(True)),
    _table,
    _draw,
    GPU,
)
