"""Which samples a gradient sees: four pure functions of its turn, vectorised over turns.

`independent`: keyed draws with replacement. `epoch`: the epoch's shuffle dealt out in the order in
which gradients start, so every sample is seen once an epoch by whoever comes first (DC-ASGD's
re-partitioning). `partition`: each worker keeps its own share and goes through reshuffled passes.
`by_label`: the same with shares of few labels each (McMahan et al. 2017).
Caches hold only what can be recomputed from the seed.
"""

from typing import Literal, Protocol, get_args

import numpy as np
import numpy.typing as npt

from tardigrad.core import keys
from tardigrad.core.checks import one_of, require

Indices = npt.NDArray[np.int64]
Sampling = Literal["independent", "epoch", "partition", "by_label"]
PIECES = 2
"""Of the samples in order of their labels, that a worker keeps."""


class Sampler(Protocol):
    """Sample indices of shape (turns, batch) for equally long arrays of turns."""

    def __call__(self, workers: Indices, steps: Indices, rows: Indices) -> Indices: ...


class Independent:
    """Sample j of (worker, step) is draw step·B + j of the worker's stream."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self._count, self._batch, self._seed = count, np.arange(batch_size), seed
        self._streams: dict[int, int] = {}

    def __call__(self, workers: Indices, steps: Indices, rows: Indices) -> Indices:
        streams = np.array([self._stream(w) for w in workers.tolist()], dtype=np.uint64)
        positions = steps[:, None] * len(self._batch) + self._batch
        return keys.integers(streams[:, None], positions, self._count)

    def _stream(self, worker: int) -> int:
        if worker not in self._streams:
            self._streams[worker] = keys.key(self._seed, "batch", worker)
        return self._streams[worker]


class Epoch:
    """Row r takes samples r·B … r·B + B − 1 of the endless sequence of shuffled epochs."""

    def __init__(self, count: int, batch_size: int, seed: int) -> None:
        self._count, self._batch = count, np.arange(batch_size)
        self._shuffles = _Shuffles(seed, "epoch")

    def __call__(self, workers: Indices, steps: Indices, rows: Indices) -> Indices:
        epochs, places = np.divmod(rows[:, None] * len(self._batch) + self._batch, self._count)
        out = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            now = epochs == epoch
            out[now] = self._shuffles.get((epoch,), self._count)[places[now]]
        return out


class Partition:
    """Worker w owns every sample of its keyed share; its step·B + j counts through its passes."""

    def __init__(self, count: int, batch_size: int, seed: int, workers: int) -> None:
        if not 1 <= workers <= count:
            raise ValueError(
                f"workers = {workers}, but there are {count} training samples to divide: "
                f"choose between 1 and {count} workers, or sampling='independent'"
            )
        self._batch, self._workers = np.arange(batch_size), workers
        self._shares = self._divided(keys.permutation(keys.key(seed, "partition"), count), seed)
        self._shuffles = _Shuffles(seed, "pass", keep=2 * workers + 2)

    def _divided(self, shuffled: Indices, seed: int) -> list[Indices]:
        return _pieces(shuffled, self._workers)

    def share(self, worker: int) -> Indices:
        """The samples that only this worker sees."""
        if not 0 <= worker < self._workers:
            raise ValueError(
                f"worker {worker} has no share: the data was divided among {self._workers} "
                f"workers; set workers = {worker + 1} or more in the task"
            )
        return self._shares[worker]

    def __call__(self, workers: Indices, steps: Indices, rows: Indices) -> Indices:
        out = np.empty((len(workers), len(self._batch)), dtype=np.int64)
        for i, (worker, step) in enumerate(zip(workers.tolist(), steps.tolist(), strict=True)):
            share = self.share(worker)
            passes, places = np.divmod(step * len(self._batch) + self._batch, len(share))
            for number in range(int(passes[0]), int(passes[-1]) + 1):
                now = passes == number
                order = self._shuffles.get((worker, number), len(share))
                out[i, now] = share[order[places[now]]]
        return out


class ByLabel(Partition):
    """The samples in order of their labels are cut into two pieces a worker, which are dealt by
    keys: most workers have two labels, no worker more than four where labels are equally frequent
    and there are at least half as many workers."""

    def __init__(
        self, count: int, batch_size: int, seed: int, workers: int, labels: Indices
    ) -> None:
        if not 1 <= PIECES * workers <= count:
            raise ValueError(
                f"workers = {workers} keep {PIECES} pieces each, but there are {count} training "
                f"samples: choose between 1 and {count // PIECES} workers, or "
                "sampling='independent'"
            )
        self._labels = labels
        super().__init__(count, batch_size, seed, workers)

    def _divided(self, shuffled: Indices, seed: int) -> list[Indices]:
        in_order = shuffled[np.argsort(self._labels[shuffled], kind="stable")]
        pieces = _pieces(in_order, PIECES * self._workers)
        dealt = keys.permutation(keys.key(seed, "pieces"), len(pieces)).reshape(-1, PIECES)
        return [np.concatenate([pieces[i] for i in own]) for own in dealt.tolist()]


def _pieces(samples: Indices, count: int) -> list[Indices]:
    """As many as equal as can be."""
    return np.split(samples, [round(i * len(samples) / count) for i in range(1, count)])


def sampler(
    sampling: str,
    count: int,
    batch_size: int,
    seed: int,
    workers: int | None = None,
    labels: Indices | None = None,
) -> Sampler:
    """The sampler of that name over `count` training samples; `labels` where they have some."""
    if sampling == "independent":
        return Independent(count, batch_size, seed)
    if sampling == "epoch":
        return Epoch(count, batch_size, seed)
    one_of("sampling", sampling, get_args(Sampling))
    if workers is None:
        raise ValueError(
            f"sampling = {sampling!r} divides the data among workers: say how many with workers=N"
        )
    if sampling == "partition":
        return Partition(count, batch_size, seed, workers)
    require(
        labels is not None,
        "sampling = 'by_label' needs one whole number a sample as its target: use 'partition'",
    )
    assert labels is not None
    return ByLabel(count, batch_size, seed, workers, labels)


class _Shuffles:
    """Keyed shuffles by their ids, the last few kept: sorting 60,000 keys takes milliseconds."""

    def __init__(self, seed: int, purpose: str, keep: int = 4) -> None:
        self._seed, self._purpose, self._keep = seed, purpose, keep
        self._kept: dict[tuple[int, ...], Indices] = {}

    def get(self, ids: tuple[int, ...], count: int) -> Indices:
        if ids not in self._kept:
            while len(self._kept) >= self._keep:
                self._kept.pop(next(iter(self._kept)))
            stream = keys.key(self._seed, self._purpose, *ids)
            self._kept[ids] = keys.permutation(stream, count)
        return self._kept[ids]
