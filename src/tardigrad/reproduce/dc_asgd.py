"""DC-ASGD on CIFAR-10 with 4 and 8 workers (Zheng et al. 2017, Table 1).

ResNet-20 for 160 epochs, batches of 128, plain SGD, the rate divided by ten at 80 and 120; the data
are dealt out anew every epoch. The digits of the text at hand are lost, so its figures cannot be
set beside ours, and four things are **choices**: the rate 0.5; weight decay 0.0001, as He et al.
(2016), whom the paper follows; images; and a warm-up of five epochs, for all rules. The paper says
that it did not augment images, but sets its errors beside those of He et al., who did: `crop/…`
has them padded, cropped and mirrored, `plain/…` as they are. A synchronous update is one of M
gradients at the same rate, so it makes 1/M as many.

Why warm up: the paper speaks of none, but without it DC-ASGD-a blows up within 50 updates
(`cold/…`), with 4 workers as with 8, with one mean square for the server too, and with ε = 0.01 in
it. Its mean square starts at 0, so λ = λ0/√MS is 1/√(1 − m) = 4.5 times too large at first, while
gradients are large; θ has then moved far from the view, the compensation exceeds the gradient and
feeds on itself, soonest in the biases of BatchNorm and in the last layer. It trains with m = 0,
with MS divided by 1 − m^k as Adam does, with a rate of 0.2 or less, with λ0 = 0.2, and with a
warm-up of one epoch. ASGD and DC-ASGD-c do not diverge without it, but stay at a loss of ln 10 for
most of a thousand updates.

What came out with three seeds, in points of accuracy, paired by seed, with 95% intervals: at M = 8
DC-ASGD-c ends +0.50 [−0.02, +1.03] above ASGD and level with SGD (−0.02), DC-ASGD-a +0.15
[−0.29, +0.60] above ASGD and 0.37 below SGD. At M = 4 c ends +0.05 [−0.21, +0.31] and a −0.06
[−0.43, +0.31] from ASGD, which itself ends level with SGD: nothing is left to compensate. So -c
does at 8 workers what the paper says, as far as three seeds can tell; that the adaptive form is the
better one is not seen. SSGD ends 1.7 and 3.1 points below SGD, since it makes 1/M as many updates.
Images as they are, one seed: SGD 83.4; at M = 8 c 83.2, ASGD 82.9, a 82.1, SSGD 76.8; at M = 4
a 83.2, c 82.8, ASGD 82.7, SSGD 80.6.
"""

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from tardigrad.core.result_table import Cell, ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.drawing import curve, legend, log_scale, panels, written
from tardigrad.reproduce.gap_aware_tables import CHANCE, GPU
from tardigrad.reproduce.kept_cells import FoundCells, paired, points_apart
from tardigrad.reproduce.study import Study, StudyCell

WORKERS = (4, 8)
RATE = 0.5
WARM_UP = 5.0
"""Epochs."""
COLD = "cold/M=8/DC-ASGD-a/seed=0"
"""Without the warm-up."""
QUICK_RATE = 0.05
"""At which ASGD with 8 workers ends highest of 0.05, 0.1, 0.2 and 0.4."""
LATE: dict[str, dict[str, Plain]] = {
    "DC-ASGD-a": {"name": "delay_compensated", "adaptive": True},
    "DC-ASGD-c": {"name": "delay_compensated"},
    "ASGD": {"name": "sgd"},
    "SSGD": {"name": "sgd"},
}
IMAGES = {"crop": "pad_crop_flip", "plain": "none"}
ACCURACY = "test_accuracy"
MARGIN = 0.005
"""What "catches up with sequential SGD" is taken for: half a point, about what seeds vary."""

SEQUENTIAL = "crop/M=1/SGD"


def _spec(
    images: str, rule: str, workers: int, seed: int, warm_up: float = WARM_UP
) -> dict[str, Plain]:
    gradients = 160 * 50_000 // 128
    rate: dict[str, Plain] = {"rate": "step", "lr": RATE, "milestones": [80, 120], "by": "epochs"}
    if warm_up:
        rate = {"rate": "warm_up", "over": warm_up, "by": "epochs", "after": rate}
    return _run(
        {
            "name": "cifar10_resnet20",
            "batch_size": 128,
            "sampling": "epoch",
            "validation": 0,
            "augment": IMAGES[images],
        },
        rule,
        workers,
        seed,
        gradients,
        rate,
        0.0001,
    )


def _small(rule: str, workers: int, seed: int) -> dict[str, Plain]:
    """An MLP on MNIST, two epochs."""
    task: dict[str, Plain] = {
        "name": "mnist_mlp",
        "hidden": 64,
        "batch_size": 32,
        "sampling": "epoch",
    }
    rate: dict[str, Plain] = {
        "rate": "step",
        "lr": QUICK_RATE,
        "milestones": [1.0, 1.5],
        "by": "epochs",
    }
    return _run(task, rule, workers, seed, 2 * 55_000 // 32, rate, 0.0)


def _run(
    task: dict[str, Plain],
    rule: str,
    workers: int,
    seed: int,
    gradients: int,
    rate: dict[str, Plain],
    weight_decay: float,
) -> dict[str, Plain]:
    """As many gradients for all; evaluated ten times."""
    updates = gradients // workers if rule == "SSGD" else gradients
    return {
        "updates": updates,
        "seed": seed,
        "evaluate_every": max(1, updates // 10),
        "splits": ["test"],
        "task": task,
        "rule": {
            **LATE.get(rule, {"name": "sgd"}),
            "lr": rate,
            "weight_decay": weight_decay,
        },
        "policy": {"name": "sync" if rule == "SSGD" else "async"},
        "cluster": {"name": "gamma", "workers": workers},
    }


def _full() -> Iterator[StudyCell]:
    for images in IMAGES:
        for seed in (0, 1, 2):
            if images == "plain" and seed:
                continue
            yield StudyCell(f"{images}/M=1/SGD/seed={seed}", _spec(images, "SGD", 1, seed))
            for workers in reversed(WORKERS):
                for rule in LATE:
                    name = f"{images}/M={workers}/{rule}/seed={seed}"
                    yield StudyCell(name, _spec(images, rule, workers, seed))
    yield StudyCell(COLD, _spec("crop", "DC-ASGD-a", 8, 0, warm_up=0))


def _quick() -> Iterator[StudyCell]:
    for seed in (0, 1, 2):
        yield StudyCell(f"crop/M=1/SGD/seed={seed}", _small("SGD", 1, seed))
        for workers in WORKERS:
            for rule in LATE:
                name = f"crop/M={workers}/{rule}/seed={seed}"
                yield StudyCell(name, _small(rule, workers, seed))


def _table(found: FoundCells) -> ResultTable:
    rows: list[tuple[Cell, ...]] = []
    for images in IMAGES:
        if not found.matching(f"{images}/*") and images != "crop":
            continue
        for workers, rule in ((1, "SGD"), *((m, r) for m in WORKERS for r in LATE)):
            stem = f"{images}/M={workers}/{rule}"
            accuracy = found.text(stem, ACCURACY, 100)
            mean = found.mean(stem, ACCURACY)
            error = None if mean is None else round(100 - 100 * mean, 2)
            rows.append((images, workers, rule, accuracy, error, found.mean(stem, "mean_delay")))
    return ResultTable(
        title="DC-ASGD paper, Table 1: final test accuracy (%)",
        columns=("images", "workers", "rule", "ours", "error", "mean delay"),
        rows=tuple(rows),
        notes=(
            "± standard deviation over seeds; the text at hand has lost the published digits",
            f"choices: rate {RATE:g}, {WARM_UP:g} epochs of warm-up, weight decay 0.0001; "
            "DC-ASGD's constants: λ0 = 0.04 (c), λ0 = 2 and m = 0.95 (a)",
            *_cold(found),
        ),
        keys=3,
    )


def _cold(found: FoundCells) -> list[str]:
    cell = found.cells.get(COLD)
    if cell is None or not cell.diverged:
        return []
    return [
        f"without the warm-up DC-ASGD-a diverges with 8 workers, at update {cell.figures['at']}"
    ]


def judge_dc_asgd(found: FoundCells) -> Verdict:
    """Both forms of DC-ASGD end above ASGD and SSGD, and within MARGIN of sequential SGD, by the
    mean difference over the seeds that both have."""
    told, wrong = [], []
    for workers in WORKERS:
        stems = {rule: f"crop/M={workers}/{rule}" for rule in LATE}
        if None in (_beside(found, stem, SEQUENTIAL) for stem in stems.values()):
            continue
        told.append(f"M={workers}: " + ", ".join(_ended(found, r, s) for r, s in stems.items()))
        lag = _beside(found, stems["ASGD"], SEQUENTIAL) or 0.0
        for rule in ("DC-ASGD-c", "DC-ASGD-a"):
            apart = paired(found, stems[rule], stems["ASGD"], ACCURACY, CHANCE)
            told[-1] += f", {rule[-1]} − ASGD {apart}" if apart else ""
            beside = {
                other: _beside(found, stems[rule], stems[other]) for other in ("ASGD", "SSGD")
            }
            under = [name for name, far in beside.items() if far is None or far <= 0]
            if under:
                wrong.append(f"{rule} does not end above {' and '.join(under)} at M={workers}")
                little = _little(workers, lag)
                wrong += [little] if lag > -100 * MARGIN and little not in wrong else []
            below = -(_beside(found, stems[rule], SEQUENTIAL) or 0.0)
            if below > 100 * MARGIN:
                wrong.append(f"{rule} ends {below:.2f} points below SGD at M={workers}")
    if not told:
        return NOT_YET
    seeds = len(found.values(SEQUENTIAL, ACCURACY, CHANCE))
    alone = 100 * (found.mean(SEQUENTIAL, ACCURACY, CHANCE) or 0.0)
    ours = f"SGD {alone:.2f}; " + "; ".join(told) + f"; seeds: {seeds}"
    if wrong:
        return Verdict("does not hold", ours, "; ".join(wrong))
    choices = (
        f"our choice of rate ({RATE:g}), a warm-up, without which DC-ASGD-a diverges, and "
        "augmented images, which the paper leaves out"
    )
    return Verdict("holds with a choice", ours, choices)


def _beside(found: FoundCells, one: str, other: str) -> float | None:
    """The mean difference in points; None where no seed has both."""
    pairs = points_apart(found, one, other, ACCURACY, CHANCE)
    return round(statistics.fmean(pairs), 6) if pairs else None


def _ended(found: FoundCells, rule: str, stem: str) -> str:
    """Its mean, and of how many seeds where sequential SGD has more."""
    ends = found.values(stem, ACCURACY, CHANCE)
    fewer = len(ends) < len(found.values(SEQUENTIAL, ACCURACY, CHANCE))
    return f"{rule} {100 * statistics.fmean(ends):.2f}" + (
        f" (seeds: {len(ends)})" if fewer else ""
    )


def _little(workers: int, lag: float) -> str:
    where = "above" if lag > 0 else "below"
    return (
        f"at M={workers} ASGD itself ends {abs(lag):.2f} points {where} SGD, so there is "
        f"{'nothing' if lag > 0 else 'little'} to compensate"
    )


def _draw(found: FoundCells, folder: Path) -> Sequence[Path]:
    form = " (quick form, a stand-in)" if found.quick else ""
    figure, grid = panels(2, f"DC-ASGD{form}: test error")
    for axes, workers in zip(grid, WORKERS, strict=True):
        lines = {"SGD": "crop/M=1/SGD", **{r: f"crop/M={workers}/{r}" for r in LATE}}
        colours = ("black", "#D55E00", "#E69F00", "#0072B2", "#009E73")
        for (name, stem), colour in zip(lines.items(), colours, strict=True):
            x, y = curve(found.matching(f"{stem}/seed=*"), "epoch", ACCURACY)
            if x:
                axes.plot(x, [100 - 100 * value for value in y], color=colour, label=name)
        log_scale(axes)
        axes.set_title(f"{workers} workers", fontsize=10)
        axes.set_xlabel("epochs")
        axes.set_ylabel("test error (%)")
        legend(axes)
    return [written(figure, folder / "dc-asgd-cifar.png")]


dc_asgd_cifar = Study(
    "dc-asgd-cifar",
    "DC-ASGD's Table 1: ASGD, SSGD and both forms of DC-ASGD beside sequential SGD, ResNet-20",
    lambda: list(_full()),
    lambda: list(_quick()),
    _table,
    _draw,
    GPU,
    gpu_wanted=True,
)
