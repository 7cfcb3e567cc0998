"""Layer timing: blocks read during the forward pass and pushed in reverse during the backward.

Lower layers are read earlier and pushed later, so they are staler (backup-workers paper, Figure 1
and Table 1). Every layer is a shard of its own; workers are asynchronous and never wait.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Floats, Ints
from tardigrad.core.checks import count, number, require
from tardigrad.scheduling.schedule import Schedule


@dataclass(frozen=True)
class LayerTiming:
    """When, within an iteration, each layer is read and pushed; the bottom layer first.

    Layer l is read at the share f·(1 − span_l) of the iteration and pushed span_l later, f being
    the forward pass's share of the time that a layer takes: what lies below it is passed on the way
    up before it is read, and on the way down after it is pushed.

    Args:
        spans: share of the iteration between each layer's read and its push: 1 at the bottom,
            never rising towards the top.
        forward: f; a backward pass takes about twice as long as a forward pass.
    """

    spans: tuple[float, ...]
    forward: float = 1 / 3

    def __post_init__(self) -> None:
        count("layers (the length of spans)", len(self.spans))
        require(self.spans[0] == 1, f"spans[0] is the bottom layer's and must be 1: {self.spans}")
        for i, span in enumerate(self.spans):
            require(0 < number(f"spans[{i}]", span) <= 1, f"spans[{i}] = {span} is not in (0, 1]")
        falling = all(a >= b for a, b in zip(self.spans, self.spans[1:], strict=False))
        require(falling, f"spans must not rise from the bottom to the top: {self.spans}")
        require(
            0 <= number("forward", self.forward) <= 1, f"forward = {self.forward} is not in [0, 1]"
        )

    @staticmethod
    def even(layers: int, forward: float = 1 / 3) -> "LayerTiming":
        """Layers that all take equally long."""
        return LayerTiming(tuple(1 - layer / layers for layer in range(layers)), forward)


def layered_schedule(
    cluster: TimedCluster, timing: LayerTiming, updates: int, seed: int = 0
) -> Schedule:
    """Asynchronous workers until every layer has made `updates` updates."""
    count("updates", updates)
    require(
        cluster.undisturbed,
        "layer timing places reads and pushes itself: give a cluster without network and absences",
    )
    begins, ends, step, worker = _iterations(cluster, updates, seed)
    layers = len(timing.spans)
    read = np.empty((len(begins), layers), dtype=np.int64)
    shards: list[Ints] = []
    rows: list[Ints] = []
    times: list[Floats] = []
    for layer, span in enumerate(timing.spans):
        read_s = begins + timing.forward * (1 - span) * (ends - begins)
        # The bottom layer's push is the end itself, not a sum that may round past it.
        push_s = ends if span == 1 else read_s + span * (ends - begins)
        order = np.argsort(push_s, kind="stable")[:updates]
        # At equal times arrivals come before reads, so a worker sees its own push.
        seen = np.searchsorted(push_s[order], read_s, side="right")
        read[:, layer] = np.minimum(seen, updates)
        shards.append(np.full(updates, layer))
        rows.append(order)
        times.append(push_s[order])
    flat_s = np.concatenate(times)
    in_order = np.argsort(flat_s, kind="stable")
    about: dict[str, Any] = {"name": type(cluster).__name__, **asdict(timing), "seed": seed}
    about["spans"] = list(timing.spans)
    return Schedule(
        workers=cluster.workers,
        shards=layers,
        worker=worker,
        step=step,
        start_s=begins,
        end_s=ends,
        stamp=read[:, 0].copy(),
        read=read,
        group_shard=np.concatenate(shards)[in_order],
        group_time_s=flat_s[in_order],
        group_scale=np.ones(len(flat_s)),
        group_start=np.arange(len(flat_s) + 1),
        group_rows=np.concatenate(rows)[in_order],
        about=about,
    )


def _iterations(
    cluster: TimedCluster, updates: int, seed: int
) -> tuple[Floats, Floats, Ints, Ints]:
    """Iterations that began before `updates` of them had ended: begin, end, step, worker."""
    times = cluster.realise(seed)
    workers = np.arange(cluster.workers)
    steps = updates // cluster.workers + 2
    while True:
        took = times.step_s(workers[:, None], np.arange(steps)[None, :])
        ends = np.cumsum(took, axis=1)
        last = np.partition(ends.ravel(), updates - 1)[updates - 1]
        if (ends[:, -1] > last).all():
            break
        steps *= 2
    begins = np.concatenate([np.zeros((cluster.workers, 1)), ends[:, :-1]], axis=1)
    worker, step = np.nonzero(begins < last)
    order = np.argsort(begins[worker, step], kind="stable")
    worker, step = worker[order], step[order]
    return begins[worker, step], ends[worker, step], step, worker
