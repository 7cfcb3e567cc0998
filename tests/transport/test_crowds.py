"""Crowds at the listener, and a system that has run out of files: who is in is served on."""

import errno
import os
import resource
import socket
import subprocess
import sys
import threading
import time

import pytest

from tardigrad.transport.listener import ListenerAddress
from tests.transport.transport_peers import Client, Echo, open_files, stranger, until

CROWD = """
import resource, socket, sys
host, port, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
peers = []
for _ in range(min(most, hard - 50)):
    peer = socket.socket()
    peer.setblocking(False)
    peer.connect_ex((host, port))
    peers.append(peer)
print(len(peers), flush=True)
sys.stdin.read()
"""


def test_ten_thousand_connections_at_once_disturb_nobody() -> None:
    echo = Echo()
    inside = Client(echo.address)
    crowd = subprocess.Popen(
        [sys.executable, "-c", CROWD, echo.address.host, str(echo.address.port), "10000"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert crowd.stdin is not None
    assert crowd.stdout is not None
    told: list[str] = []
    telling = threading.Thread(target=lambda: told.append(crowd.stdout.readline()))  # type: ignore[union-attr]
    telling.start()
    asked = 0
    while telling.is_alive():
        assert inside.ask([asked])[0] == [asked]
        asked += 1
        assert open_files() < 300
    assert int(told[0]) == min(10_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 50)
    assert asked > 10
    late = Client(echo.address)  # and whoever knows the secret comes in
    assert late.ask(["late"])[0] == ["late"]
    assert inside.ask(["inside"])[0] == ["inside"]
    crowd.stdin.close()
    crowd.wait()
    crowd.stdout.close()
    echo.listener.close()
    until(lambda: late.reasons and inside.reasons)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOBUFS, errno.EINVAL, errno.ECONNABORTED])
def test_no_error_of_accept_is_for_ever(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Echo()
    inside = Client(echo.address)
    failed = 0
    accept = socket.socket.accept

    def fail(listening: socket.socket) -> object:
        nonlocal failed
        failed += 1
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "accept", fail)
    peer = stranger(echo.address)
    until(lambda: failed >= 3)
    assert inside.ask([1])[0] == [1]
    monkeypatch.setattr(socket.socket, "accept", accept)
    late = Client(echo.address)
    assert late.ask([2])[0] == [2]
    peer.close()
    echo.listener.close()
    until(lambda: late.reasons and inside.reasons)


def test_a_listener_without_files_left_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = Echo()
    times: list[float] = []

    def fail(listening: socket.socket) -> object:
        times.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(socket.socket, "accept", fail)
    peer = stranger(echo.address)
    until(lambda: len(times) >= 4)
    assert times[3] - times[0] >= 0.29
    peer.close()
    echo.listener.close()


WITHOUT_FILES = """
import resource, sys
from tests.transport.transport_peers import Client, Echo
echo = Echo()
inside = Client(echo.address)
resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
print(*echo.address, flush=True)
sys.stdin.readline()
print(inside.ask(["inside"])[0], flush=True)
sys.stdin.readline()
"""


def test_a_listener_that_has_run_out_of_files_serves_on_and_recovers() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WITHOUT_FILES],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    name, host, port = process.stdout.readline().split()
    address = ListenerAddress(name, host, int(port))
    crowd = [stranger(address) for _ in range(100)]  # of which it has no room for more than 40
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "['inside']\n"
    late = Client(address)
    assert late.ask(["late"])[0] == ["late"]
    for peer in crowd:
        peer.close()
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    until(lambda: late.reasons)
