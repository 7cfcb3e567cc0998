"""Round trips per second on Ray, beside an ordinary actor and gloo."""

import statistics
from collections.abc import Sequence

from tardigrad.clusters import Constant
from tardigrad.core.checks import count, require
from tardigrad.core.result_table import ResultTable
from tardigrad.rules import gap_aware
from tardigrad.runtime import check_ray
from tardigrad.tasks import ModuleTask
from tardigrad.tasks.mnist import mlp, mnist_mlp
from tardigrad.tasks.module import initialised

SIZES = (160_000, 1_000_000, 10_000_000)
WORKERS = (1, 2, 3, 4)
NODES = (1, 2)
SLICE_S = 0.5


def bench_ray(
    quick: bool = False,
    mnist: bool = False,
    sizes: Sequence[int] = SIZES,
    workers: Sequence[int] = WORKERS,
    nodes: Sequence[int] = NODES,
    repeats: int = 3,
    slice_s: float = SLICE_S,
) -> ResultTable:
    """Push + pull: tardigrad's runtime, an ordinary Ray actor, and gloo's send and recv.

    A round trip is a gradient to the server, a step of SGD there, and the new parameters back in
    the worker's own memory. actor: `apply_gradients` and `get_weights`, one call of each. gloo:
    torch.distributed between as many processes. Slices of half a second take turns; the median is
    reported, after one slice of each that does not count. quick: 1M parameters, 1 and 4 workers.
    mnist: instead, seconds to a target loss beside DistributedDataParallel, with a slow worker.
    """
    if mnist:
        return to_target()
    check_ray()
    from tardigrad.bench.round_trips import WAYS, measured_rates

    if quick:
        sizes, workers = (1_000_000,), (1, 4)
    for name, values in (("sizes", sizes), ("workers", workers)):
        for value in values:
            count(name, value)
    require(set(nodes) <= {1, 2}, f"nodes = {list(nodes)}: 1 and 2 can be measured here")
    ours, *others = WAYS
    rows: list[tuple[str | float, ...]] = []
    for apart in nodes:
        with measured_rates(max(workers), apart) as measured:
            for size in sizes:
                for many in workers:
                    found: dict[str, list[float]] = {way: [] for way in WAYS}
                    for _ in range(repeats + 1):
                        for way in WAYS:
                            found[way].append(measured.rate(way, size, many, slice_s))
                    rate = {way: statistics.median(all_[1:]) for way, all_ in found.items()}
                    ratios = (rate[ours] / rate[other] for other in others)
                    rows.append((apart, f"{size:,}", many, *(rate[way] for way in WAYS), *ratios))
    return ResultTable(
        title=f"Round trips (push + pull) per second, median of {repeats} slices",
        columns=(
            "nodes", "parameters", "workers", *WAYS, *(f"{ours} ÷ {other}" for other in others),
        ),
        rows=tuple(rows),
        notes=(
            "tardigrad logs every push before it answers and records the run for replay; "
            "the others keep nothing",
            "2 nodes: two raylets on this machine, the workers on the other one than the server, "
            "and nothing shared between them",
        ),
    )  # fmt: skip


def to_target(
    task: ModuleTask | None = None,
    target: float = 0.3,
    rates: Sequence[float] = (0.01, 0.02, 0.04),
    step_s: float = 0.02,
    most: int = 2400,
) -> ResultTable:
    """Seconds to a validation loss on MNIST, 4 workers, one of them 5 times slower.

    Asynchronous Gap-Aware on this runtime, beside DistributedDataParallel on gloo: imposed step
    times, batches, momentum (0.9, Nesterov) and learning rates are the same, and each way is judged
    by its best rate. `most` gradients are computed where the target is not reached.
    """
    check_ray()
    from tardigrad.bench.to_target import seconds_of_ddp, seconds_of_train
    from tardigrad.runtime import ActorPool, local

    task = mnist_mlp() if task is None else task
    module = initialised(lambda: mlp(200, "mnist"), task.seed)
    times = Constant(4, (step_s, step_s, step_s, 5 * step_s))
    rows: list[tuple[float | None, ...]] = []
    with local(2 * times.workers + 1), ActorPool() as pool:
        for lr in rates:
            ours = seconds_of_train(task, gap_aware(lr), times, target, most, pool)
            theirs = seconds_of_ddp(task, module, lr, times, target, most // times.workers)
            rows.append((lr, ours, theirs))
    best = [
        min((seconds for row in rows if (seconds := row[way]) is not None), default=None)
        for way in (1, 2)
    ]
    return ResultTable(
        title=f"Seconds to validation loss {target} on MNIST, 4 workers, one of them 5× slower",
        columns=("learning rate", "async, gap_aware", "DistributedDataParallel"),
        rows=tuple(rows),
        notes=(_verdict(*best),),
    )


def _verdict(ours: float | None, theirs: float | None) -> str:
    if ours is None or theirs is None:
        return "an empty cell: not reached; more gradients or another rate are needed"
    return f"each at its best rate: {theirs / ours:.2f} times faster than DistributedDataParallel"
