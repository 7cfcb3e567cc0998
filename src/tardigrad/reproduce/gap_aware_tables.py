"""Gap-Aware's Tables 4 and 5: seven rules on CIFAR-10 with asynchronous workers.

The paper's setting (Appendix C.4): batches of 128, NAG with momentum 0.9, weight decay 0.0005, rate
0.1 with a warm-up of five epochs from 0.1/N; ResNet-20 for 160 epochs, the rate divided by ten at
80 and 120; WideResNet-16-4 for 200 epochs, times 0.2 at 60, 120 and 160. Equal machines, gamma step
times. Taken to be so, where the paper is silent: every epoch's samples are dealt out to whoever
comes first, images are padded, cropped and mirrored, all 50,000 are trained on.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tardigrad.core.result_table import ResultTable
from tardigrad.experiment.structure import Plain
from tardigrad.reproduce.claims import NOT_YET, Verdict
from tardigrad.reproduce.drawing import accuracy_by_workers
from tardigrad.reproduce.kept_cells import FoundCells, paired
from tardigrad.reproduce.study import Study, StudyCell

RULES: dict[str, dict[str, Plain]] = {
    "SA": {"name": "staleness_aware", "momentum": 0.9, "nesterov": True},
    "GA": {"name": "gap_aware", "momentum": 0.9},
    "DANA-GA": {"name": "dana_ga", "momentum": 0.9},
    "DANA-SA": {"name": "dana_sa", "momentum": 0.9},
    "NAG-ASGD": {"name": "sgd", "momentum": 0.9, "nesterov": True},
    "ASGD": {"name": "sgd"},
    "DANA": {"name": "dana", "momentum": 0.9},
}
REPEATED = ("SA", "GA", "DANA-GA")
"""With three seeds, at 32 workers."""
BASELINE = "N=1/NAG"
ACCURACY = "test_accuracy"
CHANCE = 0.1
"""What a diverged run counts as, which is how the paper prints it."""

PublishedRow = Mapping[str, tuple[float, float]]


def _row(*cells: float) -> PublishedRow:
    """In the paper's order of columns: mean and deviation by rule."""
    order = ("SA", "DANA-SA", "NAG-ASGD", "GA", "ASGD", "DANA", "DANA-GA")
    return dict(zip(order, zip(cells[::2], cells[1::2], strict=True), strict=True))


class TableSetting(NamedTuple):
    """One table of the paper."""

    title: str
    task: str
    epochs: int
    milestones: tuple[int, ...]
    factor: float
    baseline: float
    published: Mapping[int, PublishedRow]


TABLE_4 = TableSetting(
    "Gap-Aware, Table 4: ResNet-20 on CIFAR-10",
    "cifar10_resnet20",
    160,
    (80, 120),
    0.1,
    92.43,
    {
        32: _row(85.59, .15, 87.64, .26, 10.0, 0, 87.92, .27, 88.3, .37, 27.6, 14.7, 91.15, .32),
        48: _row(80.82, .46, 85.6, .28, 10.0, 0, 85.0, .66, 83.6, .69, 10.0, 0, 90.68, .33),
        8: _row(90.63, .14, 90.99, .13, 87.68, .35, 91.21, .32, 90.28, .21, 91.97, .17, 92.13, .14),
    },
)  # fmt: skip
TABLE_5 = TableSetting(
    "Gap-Aware, Table 5: WideResNet-16-4 on CIFAR-10",
    "cifar10_wideresnet16_4",
    200,
    (60, 120, 160),
    0.2,
    95.17,
    {
        32: _row(
            88.7, .06, 89.35, .16, 19.52, 19.03, 92.35, .22, 91.22, .19, 68.1, 14.03, 94.27, .1
        ),
    },
)  # fmt: skip


def spec_of(
    setting: TableSetting,
    rule: Mapping[str, Plain],
    workers: int,
    seed: int,
    heterogeneous: bool = False,
    lr: float = 0.1,
) -> dict[str, Plain]:
    """One run of the paper's; evaluated ten times."""
    updates = setting.epochs * 50_000 // 128
    return {
        "updates": updates,
        "seed": seed,
        "evaluate_every": updates // 10,
        "splits": ["test"],
        "task": {"name": setting.task, "batch_size": 128, "sampling": "epoch", "validation": 0},
        "rule": {
            **rule,
            "weight_decay": 0.0005,
            "lr": _rate(list(setting.milestones), setting.factor, 5, "epochs", lr),
        },
        "cluster": _cluster(workers, heterogeneous),
    }


def _rate(milestones: list[int], factor: float, over: int, by: str, lr: float) -> Plain:
    after = {"rate": "step", "lr": lr, "milestones": milestones, "factor": factor, "by": by}
    return {"rate": "warm_up", "over": over, "by": by, "after": after}


def _cluster(workers: int, heterogeneous: bool = False) -> dict[str, Plain]:
    unequal: dict[str, Plain] = {"heterogeneous": True} if heterogeneous else {}
    return {"name": "gamma", "workers": workers, **unequal}


QUICK_UPDATES = 3000
QUICK_RATE = 0.03
"""At which one worker ends highest of 0.01, 0.02, 0.03 and 0.1."""


def small_spec(
    rule: Mapping[str, Plain],
    workers: int,
    seed: int,
    heterogeneous: bool = False,
    lr: float = QUICK_RATE,
) -> dict[str, Plain]:
    """The same in small: an MLP on MNIST, batches of 32, the rate falling at the same shares."""
    updates = QUICK_UPDATES
    milestones, over = [updates // 2, updates * 3 // 4], updates // 32
    return {
        "updates": updates,
        "seed": seed,
        "evaluate_every": updates // 10,
        "splits": ["test"],
        "engine": "exact",
        "task": {"name": "mnist_mlp", "hidden": 64, "batch_size": 32, "sampling": "epoch"},
        "rule": {
            **rule,
            "weight_decay": 0.0005,
            "lr": _rate(milestones, 0.1, over, "updates", lr),
        },
        "cluster": _cluster(workers, heterogeneous),
    }


def _full(setting: TableSetting) -> Iterator[StudyCell]:
    for workers in setting.published:
        named = RULES if workers != 32 else {**{n: RULES[n] for n in REPEATED}, **RULES}
        for name, rule in named.items():
            yield _cell(setting, workers, name, rule, 0)
        if workers == 32:
            yield StudyCell(f"{BASELINE}/seed=0", spec_of(setting, RULES["NAG-ASGD"], 1, 0))
            for seed in (1, 2):
                for name in REPEATED:
                    yield _cell(setting, workers, name, RULES[name], seed)


def _cell(
    setting: TableSetting, workers: int, name: str, rule: Mapping[str, Plain], seed: int
) -> StudyCell:
    return StudyCell(f"N={workers}/{name}/seed={seed}", spec_of(setting, rule, workers, seed))


def _quick() -> Iterator[StudyCell]:
    for name, rule in RULES.items():
        seeds = (0, 1, 2) if name in REPEATED else (0,)
        for seed in seeds:
            yield StudyCell(f"N=32/{name}/seed={seed}", small_spec(rule, 32, seed))
    yield StudyCell(f"{BASELINE}/seed=0", small_spec(RULES["NAG-ASGD"], 1, 0))


def _table(setting: TableSetting, title: str) -> Callable[[FoundCells], ResultTable]:
    def made(found: FoundCells) -> ResultTable:
        rows = []
        for workers, published in setting.published.items():
            if found.quick and workers != 32:
                continue
            for name in RULES:
                mean, deviation = published[name]
                stem = f"N={workers}/{name}"
                delay = found.mean(stem, "mean_delay")
                rows.append(
                    (
                        workers,
                        name,
                        found.text(stem, ACCURACY, 100),
                        f"{mean:.2f} ± {deviation:g}",
                        None if delay is None else round(delay, 1),
                    )
                )
        ours = found.text(BASELINE, ACCURACY, 100)
        rows.append((1, "NAG", ours, f"{setting.baseline:.2f}", 0))
        return ResultTable(
            title=f"{title}: final test accuracy (%)",
            columns=("workers", "rule", "ours", "published", "mean delay"),
            rows=tuple(rows),
            notes=(
                "± standard deviation over seeds, (3) of three; published: over five",
                *_differences(found),
            ),
            keys=2,
        )

    return made


def _differences(found: FoundCells) -> list[str]:
    """Between the rules that have several seeds, at 32 workers."""
    pairs = (("GA", "SA"), ("DANA-GA", "GA"))
    told = {
        f"{a} − {b}": paired(found, f"N=32/{a}", f"N=32/{b}", ACCURACY, CHANCE) for a, b in pairs
    }
    known = [f"{names} {apart}" for names, apart in told.items() if apart]
    words = "differences at 32 workers, paired by seed, with 95% intervals: "
    return [words + ", ".join(known)] if known else []


def judge_table(found: FoundCells) -> Verdict:
    """DANA-GA ends highest of the seven and Gap-Aware above staleness-aware, at every number of
    workers of which all seven are there."""
    numbers = list(dict.fromkeys(name.split("/")[0] for name in found.planned))
    whole, wrong, told, partly = [], [], [], []
    for number in numbers:
        means = {name: found.mean(f"{number}/{name}", ACCURACY, CHANCE) for name in RULES}
        ends = {name: mean for name, mean in means.items() if mean is not None}
        if len(ends) < len(RULES):
            partly += [f"{number}/{name} {100 * end:.2f}" for name, end in ends.items()]
            continue
        whole.append(number)
        told.append(f"{number}: " + ", ".join(f"{n} {100 * ends[n]:.2f}" for n in REPEATED))
        apart = paired(found, f"{number}/GA", f"{number}/SA", ACCURACY, CHANCE)
        told[-1] += f", GA − SA {apart}" if apart else ""
        best = max(ends, key=lambda name: ends[name])
        if best != "DANA-GA":
            wrong.append(f"{best} ends highest at {number}")
        if ends["GA"] <= ends["SA"]:
            wrong.append(f"GA does not end above SA at {number}")
    if not whole:
        return NOT_YET._replace(ours=", ".join(partly))
    if wrong:
        return Verdict("does not hold", "; ".join(told), "; ".join(wrong))
    return Verdict("holds", "; ".join(told))


def _draw(found: FoundCells, folder: Path) -> Sequence[Path]:
    setting = TABLE_5 if found.study.endswith("5") else TABLE_4
    path = folder / f"{found.study}.png"
    title = "Seven rules" if found.quick else setting.title
    accuracy_by_workers(path, title, found, list(RULES), setting.published, setting.baseline)
    return [path]


GPU: dict[str, Plain] = {"precision": "tf32", "channels_last": True}

table_4 = Study(
    "gap-aware-table4",
    "Gap-Aware's Table 4: seven rules, ResNet-20 on CIFAR-10, 8, 32 and 48 workers",
    lambda: list(_full(TABLE_4)),
    lambda: list(_quick()),
    _table(TABLE_4, "Gap-Aware paper, Table 4"),
    _draw,
    GPU,
    gpu_wanted=True,
)
table_5 = Study(
    "gap-aware-table5",
    "Gap-Aware's Table 5: seven rules, WideResNet-16-4 on CIFAR-10, 32 workers",
    lambda: list(_full(TABLE_5)),
    lambda: [],
    _table(TABLE_5, "Gap-Aware paper, Table 5"),
    _draw,
    GPU,
    gpu_wanted=True,
)
