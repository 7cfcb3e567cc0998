"""Round trips per second on Ray, beside an ordinary actor and gloo."""

import statistics
from collections.abc import Sequence

from tardigrad.checks import count
from tardigrad.findings import Findings

SIZES = (160_000, 1_000_000, 10_000_000)
WORKERS = (1, 2, 3, 4)
SLICE_S = 0.5


def bench_ray(
    quick: bool = False,
    sizes: Sequence[int] = SIZES,
    workers: Sequence[int] = WORKERS,
    repeats: int = 3,
    slice_s: float = SLICE_S,
) -> Findings:
    """Push + pull on one node: tardigrad's runtime, an ordinary Ray actor, gloo's send and recv.

    A round trip is a gradient to the server, a step of SGD there, and the new parameters back in
    the worker's own memory. actor: `apply_gradients` and `get_weights`, one call of each. gloo:
    torch.distributed between as many processes. Slices of half a second take turns; the median is
    reported, after one slice of each that does not count. quick: 1M parameters, 1 and 4 workers.
    """
    from tardigrad.runtime import WAYS, rates

    if quick:
        sizes, workers = (1_000_000,), (1, 4)
    for name, values in (("sizes", sizes), ("workers", workers)):
        for value in values:
            count(name, value)
    ours, *others = WAYS
    rows: list[tuple[str | float, ...]] = []
    with rates(max(workers)) as measured:
        for size in sizes:
            for many in workers:
                found: dict[str, list[float]] = {way: [] for way in WAYS}
                for _ in range(repeats + 1):
                    for way in WAYS:
                        found[way].append(measured.rate(way, size, many, slice_s))
                rate = {way: statistics.median(all_[1:]) for way, all_ in found.items()}
                ratios = (rate[ours] / rate[other] for other in others)
                rows.append((f"{size:,}", many, *(rate[way] for way in WAYS), *ratios))
    return Findings(
        title=f"Round trips (push + pull) per second on one node, median of {repeats} slices",
        columns=("parameters", "workers", *WAYS, *(f"{ours} ÷ {other}" for other in others)),
        rows=tuple(rows),
        notes=(
            "tardigrad logs every push before it answers and records the run for replay; "
            "the others keep nothing",
        ),
    )
