"""Connecting to Ray: a cluster that is there, or a local one of our own."""

import logging
import math
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

from tardigrad.core.checks import require
from tardigrad.core.stop_signals import sigterm_kept

NEAR, FAR = "near", "far"
"""The resources that bind actors to the first and the second of `two_nodes`."""
OBJECT_STORE_BYTES = 256 * 1024 * 1024
ANSWER_S = 5.0
LOOPBACK_ONLY = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Whether Ray may be more than one machine; "0" makes it bind to loopback, on Linux too."""


@contextmanager
def connected(address: str | None, cpus: float) -> Iterator[float]:
    """Within the block this process is connected to Ray; what we started ends with it.

    Yields the CPUs that an actor takes: none on a Ray of our own, which has this machine to share
    out anyway; one each on a cluster, so that they spread over its nodes.

    cpus: what a Ray of our own says it has.
    """
    if starts_own(address):
        with local(math.ceil(cpus)):
            yield 0.0
        return
    if ray.is_initialized():
        yield 1.0
        return
    assert address is not None
    check_answers(address)
    with sigterm_kept():
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    try:
        yield 1.0
    finally:
        ray.shutdown()


def starts_own(address: str | None) -> bool:
    """Whether there is no Ray yet, and none to join."""
    return address is None and not ray.is_initialized()


@contextmanager
def local(actors: int, object_store_bytes: int = OBJECT_STORE_BYTES) -> Iterator[None]:
    """A Ray of our own: on loopback only, with a token that only its own processes know, and its
    sockets in a folder that no other user may enter."""
    with _environment(), _private_folder() as folder:
        with sigterm_kept():
            ray.init(
                address="local",  # not the one that someone may have started on this machine
                _temp_dir=folder,
                num_cpus=actors,
                num_gpus=torch.cuda.device_count(),
                include_dashboard=False,
                object_store_memory=object_store_bytes,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        try:
            yield
        finally:
            ray.shutdown()


@contextmanager
def two_nodes(actors: int, object_store_bytes: int = OBJECT_STORE_BYTES) -> Iterator[None]:
    """Two raylets on this machine, to see what crossing nodes costs: one has `NEAR`, one `FAR`."""
    node: dict[str, Any] = {"num_cpus": actors, "object_store_memory": object_store_bytes}
    with _private_folder() as folder, _environment(RAY_TMPDIR=folder):
        # Where `Cluster` notes its address for whoever looks for a Ray, and which it does not make.
        os.mkdir(os.path.join(folder, "ray"))
        head = {
            **node,
            "include_dashboard": False,
            "resources": {NEAR: float(actors)},
            "temp_dir": folder,
        }
        cluster: Any = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(**node, resources={FAR: float(actors)})
            ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            try:
                yield
            finally:
                ray.shutdown()
        finally:
            cluster.shutdown()


@contextmanager
def _private_folder() -> Iterator[str]:
    """For Ray's session, whose folder of sockets Ray makes writable for everybody."""
    folder = tempfile.mkdtemp(prefix="tg-ray-")  # short: a socket's path has at most 107 bytes
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _environment(**always: str) -> Iterator[None]:
    """Settings for what is started within; those that the user has made stay as they are, but
    `always`."""
    settings = {
        LOOPBACK_ONLY: "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # one worker's error is told; all others' are the same
        "RAY_worker_niceness": "0",  # or any other program comes first, and actors seem to be dead
    }
    if "RAY_AUTH_MODE" not in os.environ:
        settings |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    ours = {name: value for name, value in settings.items() if name not in os.environ} | always
    before = {name: os.environ[name] for name in ours if name in os.environ}
    os.environ.update(ours)
    _read_again()
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
        os.environ.update(before)
        _read_again()


def _read_again() -> None:
    """Ray reads these settings when it is imported, which was before, and has no public way to
    repeat that. Where the private one is missing, Ray's own defaults decide."""
    try:
        from ray._private import ray_constants
        from ray._raylet import (  # type: ignore[attr-defined]
            AuthenticationTokenLoader,
            Config,
        )

        ray_constants.ENABLE_RAY_CLUSTER = os.environ.get(LOOPBACK_ONLY) != "0"
        Config.initialize("")
        AuthenticationTokenLoader.instance().reset_cache()
    except (ImportError, AttributeError):
        pass


def check_answers(address: str) -> None:
    """A cluster that is not there is told at once, not after Ray's own long wait."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    require(
        bool(host) and port.isdigit() and "/" not in address,
        f"address = {address!r} is not HOST:PORT of a cluster's head node, such as "
        "192.168.0.10:6379 (`ray start --head` prints it)",
    )
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except OSError as error:
        raise ValueError(
            f"no Ray cluster answers at {address} ({error}): start one there with "
            "`ray start --head --port=6379`, or leave the address out for a local one"
        ) from error
