"""Round trips by gloo's send and recv, which other ways are measured beside.

The processes of a group each call `meet`; then the server calls `serve` while each worker calls
`ask`.
"""

import os
import sys
import time

import torch
from torch import distributed as dist

LR = 0.01
WARM = 10
"""Round trips of each worker before the clock starts: memory is mapped, connections are made."""


def meet(where: str, rank: int, peers: int) -> None:
    """where: file:// and a file that does not exist yet. Rank 0 is the server."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    dist.init_process_group("gloo", init_method=where, rank=rank, world_size=peers)


def serve(size: int, workers: int, seconds: float) -> float:
    """Answer whoever sends, then send each worker NaN, which says that it is over. Returns how many
    round trips all workers made in a second."""
    weights, grad = torch.zeros(size), torch.empty(size)
    count = -WARM * workers
    began = time.perf_counter()
    while count <= 0 or time.perf_counter() < began + seconds:
        if count == 0:
            began = time.perf_counter()
        sender = dist.recv(grad)
        weights.add_(grad, alpha=-LR)
        dist.send(weights, sender)
        count += 1
    rate = count / (time.perf_counter() - began)
    weights.fill_(torch.nan)
    for _ in range(workers):
        dist.send(weights, dist.recv(grad))
    return rate


def ask(size: int) -> None:
    grad, view = torch.ones(size), torch.zeros(size)
    while not view[0].isnan():
        dist.send(grad, 0)
        dist.recv(view, 0)
