"""Round trips per second through a TCP connection of the transport, beside gloo and memcpy."""

import multiprocessing
import queue
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tardigrad.bench import gloo
from tardigrad.bench.gloo import LR, WARM
from tardigrad.core.checks import count
from tardigrad.core.result_table import ResultTable
from tardigrad.transport.connect import connect
from tardigrad.transport.connection import Connection
from tardigrad.transport.listener import Listener, ListenerAddress

SIZES = (160_000, 1_000_000, 10_000_000)
SLICE_S = 0.5
WAYS = ("tardigrad", "gloo", "memcpy")
HOST = "127.0.0.1"
TIMEOUT_S = 60.0


def bench_transport(
    quick: bool = False,
    sizes: Sequence[int] = SIZES,
    repeats: int = 5,
    slice_s: float = SLICE_S,
) -> ResultTable:
    """Push + pull over loopback TCP: the transport alone, gloo's send and recv, and memcpy.

    A round trip is a gradient to the server, a step of SGD there, and the new parameters back in
    the worker's own memory, between two processes of one thread each. memcpy: the same in one
    process, where each vector is copied once: nothing that copies can be faster. Slices of half a
    second take turns; the median is reported, after one of each that does not count. quick: 1M
    parameters.
    """
    if quick:
        sizes = (1_000_000,)
    for size in sizes:
        count("sizes", size)
    count("repeats", repeats)
    rows: list[tuple[str | float, ...]] = []
    with _processes() as rate:
        for size in sizes:
            found: dict[str, list[float]] = {way: [] for way in WAYS}
            for _ in range(repeats + 1):
                for way in WAYS:
                    found[way].append(rate(way, size, slice_s))
            ours, *others = (statistics.median(found[way][1:]) for way in WAYS)
            rows.append((f"{size:,}", ours, *others, *(ours / other for other in others)))
    return ResultTable(
        title=f"Round trips (push + pull) per second over TCP, median of {repeats} slices",
        columns=("parameters", *WAYS, *(f"tardigrad ÷ {other}" for other in WAYS[1:])),
        rows=tuple(rows),
        notes=("one worker; TCP copies each vector twice, memcpy once",),
    )


@contextmanager
def _processes() -> Iterator[Any]:
    """A server and a worker; yields what measures a way with them. Both end with the block."""
    context = multiprocessing.get_context("spawn")
    secret = secrets.token_bytes(32)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        pipes: list[Pipe] = []
        running = []
        for main in (_server, _worker):
            here, there = context.Pipe()
            running.append(context.Process(target=main, args=(there, secret, meeting), daemon=True))
            running[-1].start()
            there.close()
            pipes.append(here)
        server, worker = pipes
        try:
            worker.send(server.recv())

            def rate(way: str, size: int, seconds: float) -> float:
                if way == "gloo":
                    server.send((size, seconds))
                worker.send((way, size, seconds))
                answered = worker.recv()
                return float(server.recv() if way == "gloo" else answered)

            yield rate
        finally:
            for process, pipe in zip(running, pipes, strict=True):
                pipe.close()
                process.join()


def _server(pipe: Pipe, secret: bytes, meeting: str) -> None:
    torch.set_num_threads(1)
    weights = torch.empty(0)

    def push(peer: Connection, header: list[Any], arrays: list[NDArray[Any]]) -> None:
        nonlocal weights
        if len(weights) != arrays[0].size:
            weights = torch.zeros(arrays[0].size)
        # The worker waits for each version, so that none is still on its way here.
        weights.add_(torch.from_numpy(arrays[0]), alpha=-LR)
        peer.send(header, [weights.numpy()])

    listener = Listener(push, lambda *_: None, lambda *_: None, secret, HOST)
    pipe.send(list(listener.address))
    gloo.meet(meeting, 0, 2)
    while (asked := _next(pipe)) is not None:
        size, seconds = asked
        pipe.send(gloo.serve(size, 1, seconds))


def _worker(pipe: Pipe, secret: bytes, meeting: str) -> None:
    torch.set_num_threads(1)
    view = np.empty(0, np.float32)
    answers: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
    connection = connect(
        ListenerAddress(*pipe.recv()),
        secret,
        False,
        [],
        lambda _, header, arrays: answers.put(header),
        lambda _, reason: answers.put([reason]),
        TIMEOUT_S,
        place=lambda header, specs: [view],
    )
    gloo.meet(meeting, 1, 2)
    while (asked := _next(pipe)) is not None:
        way, size, seconds = asked
        if way == "gloo":
            gloo.ask(size)
            pipe.send(None)
            continue
        grad, view = np.ones(size, np.float32), np.empty(size, np.float32)
        there = _there(size, grad, view)
        done = -WARM
        began = time.perf_counter()
        while done <= 0 or time.perf_counter() < began + seconds:
            if done == 0:
                began = time.perf_counter()
            if way == "memcpy":
                there()
            else:
                connection.send([done], [grad])
                answered = answers.get(timeout=TIMEOUT_S)
                if answered != [done]:
                    raise ConnectionError(f"the connection ended: {answered}")
            done += 1
        pipe.send(done / (time.perf_counter() - began))
    connection.close()


def _there(size: int, grad: NDArray[Any], view: NDArray[Any]) -> Any:
    """A round trip in one process: two copies and a step."""
    weights, received = torch.zeros(size), np.empty(size, np.float32)
    plain, step = weights.numpy(), torch.from_numpy(received)

    def round_trip() -> None:
        np.copyto(received, grad)
        weights.add_(step, alpha=-LR)
        np.copyto(view, plain)

    return round_trip


def _next(pipe: Pipe) -> Any:
    """What is asked next; None at the end."""
    try:
        return pipe.recv()
    except EOFError:
        return None
