"""Who may come in: who proves that it knows the secret. The others disturb nobody."""

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from tardigrad.transport.connect import connect
from tardigrad.transport.frames import DEFAULT_LIMITS, MARK, PREFIX
from tardigrad.transport.handshake import HandshakeError, ListenerHandshake, PeerHandshake
from tardigrad.transport.listener import Listener, ListenerAddress
from tardigrad.transport.pool import ArrayPool
from tardigrad.transport.reader import FrameReader
from tests.transport.transport_peers import (
    HOST,
    SECRET,
    Client,
    Echo,
    all_of,
    frame_bytes,
    open_files,
    stranger,
    until,
)


@pytest.fixture
def guest(echo: Echo) -> Iterator[Client]:
    """One who is in: served before and after whatever a test does."""
    client = Client(echo.address)
    assert client.ask(["before"])[0] == ["before"]
    yield client
    assert client.ask(["after"])[0] == ["after"]
    assert [peer for peer, _ in echo.opened] == [echo.opened[0][0]]
    client.connection.close()


def header_from(peer: socket.socket) -> list[Any]:
    """The next frame's."""
    reader = FrameReader(DEFAULT_LIMITS, ArrayPool())
    while True:
        if not reader.fill(peer):
            raise EOFError
        for header, _ in reader.frames():
            return header


def test_without_the_secret_nobody_comes_in(echo: Echo, guest: Client) -> None:
    with pytest.raises(HandshakeError, match="the secret is another one"):
        Client(echo.address, secret=b"a secret of another run")
    with pytest.raises(HandshakeError, match="the secret is another one"):
        Client(echo.address, near=True, secret=b"a secret of another run")


def test_who_says_hello_without_proof_is_not_heard(echo: Echo, guest: Client) -> None:
    for said in (["push", 1], [], ["proof"], ["proof", "", "[]", ""], ["proof", 1, 2, 3]):
        peer = stranger(echo.address)
        assert header_from(peer)[0] == "challenge"
        peer.sendall(frame_bytes(said))
        assert header_from(peer)[0] == "refused"
        assert all_of(peer) == b""


def test_a_recorded_handshake_is_good_only_once(echo: Echo, guest: Client) -> None:
    """Replayed whole, or with the listener's new nonce in the place of the recorded one."""
    handshake = PeerHandshake(SECRET, echo.address.name, ["worker", 0])
    peer = stranger(echo.address)
    proof = handshake.answer(header_from(peer))
    peer.close()  # it was seen on its way, and never used
    again = stranger(echo.address)
    challenge = header_from(again)
    again.sendall(frame_bytes(proof))
    assert header_from(again)[0] == "refused"
    assert all_of(again) == b""
    last = stranger(echo.address)
    assert header_from(last) != challenge
    last.close()


def test_a_proof_is_not_good_for_another_hello_or_listener(echo: Echo, guest: Client) -> None:
    other = Echo()
    for change in ("hello", "listener"):
        address = other.address if change == "listener" else echo.address
        peer = stranger(echo.address)
        proof = PeerHandshake(SECRET, address.name, ["worker", 0]).answer(header_from(peer))
        if change == "hello":
            proof[2] = proof[2].replace("0", "1")
        peer.sendall(frame_bytes(proof))
        assert header_from(peer)[0] == "refused"
        peer.close()
    # As after a restart: another listener of the run has got the port that this one had.
    stale = echo.address._replace(host=other.address.host, port=other.address.port)
    with pytest.raises(HandshakeError, match="another has got its port"):
        Client(stale)
    other.listener.close()


class Impostor:
    """Listens, and answers the proof with whatever `answer` makes of it and of a handshake."""

    def __init__(self, answer: Any, secret: bytes = b"not the secret of the run") -> None:
        self._answer, self._secret = answer, secret
        self._listening = socket.create_server((HOST, 0))
        self.address = ListenerAddress("tardigrad-of-another", *self._listening.getsockname())
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        handshake = ListenerHandshake(self._secret, self.address.name)
        peer, _ = self._listening.accept()
        self._listening.close()
        with peer, suppress(ConnectionError):  # whoever sees through it goes away in the middle
            peer.sendall(frame_bytes(handshake.challenge()))
            proof = header_from(peer)
            peer.sendall(self._answer(handshake, proof) + frame_bytes(["deliver"], [np.zeros(3)]))
            all_of(peer)


@pytest.mark.parametrize(
    "answer",
    [
        lambda _, proof: frame_bytes(["welcome", secrets.token_hex(32)]),
        lambda _, proof: frame_bytes(["welcome", proof[3]]),  # the peer's own words
        lambda _, proof: frame_bytes(["welcome", ""]),
        lambda _, proof: frame_bytes(["deliver"]),
    ],
)
def test_the_listener_must_prove_itself_too(answer: Any) -> None:
    came: list[Any] = []
    with pytest.raises(HandshakeError):
        connect(
            Impostor(answer).address, SECRET, False, [], lambda *message: came.append(message),
            lambda *gone: came.append(gone), 30,
        )  # fmt: skip
    assert came == []


def test_a_listener_that_has_proven_nothing_may_send_no_more_than_a_stranger() -> None:
    asked: list[Any] = []

    def place(header: list[Any], specs: Any) -> list[Any]:
        asked.append(specs)
        return ArrayPool()(header, specs)

    liar = Impostor(lambda *_: frame_bytes(["welcome"], [np.zeros(100_000)]))
    with pytest.raises((ConnectionError, TimeoutError)):
        Client(liar.address, place=place, timeout_s=5.0)
    assert asked == []


def test_what_comes_together_with_the_welcome_is_heard() -> None:
    true = Impostor(lambda handshake, proof: frame_bytes(handshake.check(proof)[1]), SECRET)
    client = Client(true.address)
    until(lambda: client.came)
    ((header, (array,)),) = client.came
    assert header == ["deliver"]
    assert array.tolist() == [0.0, 0.0, 0.0]
    client.connection.close()


GARBAGE = {
    "a browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(100_000),
    "noise": secrets.token_bytes(100_000),
    "a frame of 2 GB of text": PREFIX.pack(MARK, 2**31, 0) + b"x" * 100_000,
    "a frame of 2 GB of arrays": PREFIX.pack(MARK, 26, 2**31) + b'[[],[["<f4",[536870912]]]]',
    "5 kB": frame_bytes(["x" * 5000]),
    "an array": frame_bytes(["proof"], [np.zeros(1)]),
    "no JSON": PREFIX.pack(MARK, 3, 0) + b"}}}",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_not_heard(echo: Echo, guest: Client, name: str) -> None:
    peer = stranger(echo.address)
    try:
        peer.sendall(GARBAGE[name])
        said = all_of(peer)
    except (BrokenPipeError, ConnectionResetError):
        said = b""
        peer.close()
    assert said.count(MARK) <= 1  # the challenge, which it got before


def test_2_gb_from_a_peer_that_is_in_end_its_connection_alone(echo: Echo, guest: Client) -> None:
    bad = Client(echo.address)
    bad.connection.peer.sendall(PREFIX.pack(MARK, 26, 2**31) + b'[[],[["<f4",[536870912]]]]')
    until(lambda: echo.closed)
    assert "2147483648 bytes of arrays: at most 1073741824 may come" in echo.closed[0][1]
    until(lambda: bad.reasons)
    del echo.opened[1:]


@pytest.mark.parametrize("sent", [b"", PREFIX.pack(MARK, 3000, 0), MARK])
def test_who_takes_too_long_is_dropped(sent: bytes) -> None:
    echo = Echo(DEFAULT_LIMITS._replace(handshake_s=0.3))
    began = time.monotonic()
    peers = [stranger(echo.address) for _ in range(3)]
    client = Client(echo.address)
    for peer in peers:
        peer.sendall(sent)
    for peer in peers:
        all_of(peer)
    assert time.monotonic() - began >= 0.3
    assert client.ask(["in"])[0] == ["in"]  # whoever is in may be silent for longer
    echo.listener.close()
    until(lambda: client.reasons)


def test_the_oldest_strangers_make_room_for_newer_ones() -> None:
    echo = Echo(DEFAULT_LIMITS._replace(pending=5, handshake_s=60.0))
    first = [stranger(echo.address) for _ in range(5)]
    for peer in first:
        assert header_from(peer)[0] == "challenge"
    client = Client(echo.address)
    assert client.ask(["in"])[0] == ["in"]
    assert all_of(first[0]) == b""
    more = [stranger(echo.address) for _ in range(5)]
    for peer in more:
        assert header_from(peer)[0] == "challenge"
    for peer in first[1:]:
        assert all_of(peer) == b""
    assert client.ask(["still in"])[0] == ["still in"]
    for peer in more:
        peer.close()
    echo.listener.close()
    until(lambda: client.reasons)


def test_who_is_dropped_in_a_crowd_tries_again() -> None:
    """The first time, the listener lets go of it before it has proven anything."""
    echo = Echo()
    taken = 0
    meet = echo.listener.meet

    def drop_the_first(peer: socket.socket, name: str) -> None:
        nonlocal taken
        taken += 1
        if taken < 3:
            raise ConnectionAbortedError
        meet(peer, name)

    echo.listener.meet = drop_the_first  # type: ignore[method-assign]
    client = Client(echo.address)
    assert taken == 3
    echo.listener.close()
    until(lambda: client.reasons)


def test_connecting_has_a_limit_and_says_what_it_waited_for() -> None:
    before = open_files()
    with socket.create_server((HOST, 0)) as silent:
        address = ListenerAddress("tardigrad-silent", *silent.getsockname())
        with pytest.raises(TimeoutError, match=f"{address.port} did not finish the handshake"):
            Client(address, timeout_s=0.2)
    with pytest.raises(ConnectionRefusedError):
        Client(address)
    with pytest.raises(ConnectionRefusedError):
        Client(address, near=True)
    until(lambda: open_files() <= before)


def test_addresses_are_plain_data() -> None:
    echo = Echo()
    plain: list[Any] = list(echo.address)
    assert [type(item) for item in plain] == [str, str, int]
    assert ListenerAddress(*plain) == echo.address
    assert echo.address.port > 0
    near_only = Echo(host=None)
    assert near_only.address[1:] == ("", 0)
    with pytest.raises(ValueError, match="does not listen on TCP"):
        Client(near_only.address)
    for each in (echo, near_only):
        each.listener.close()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_the_whole_network_is_not_listened_to(host: str) -> None:
    with pytest.raises(ValueError, match="the one address of this machine"):
        Echo(host=host)


def test_an_address_of_another_machine_is_refused_by_name() -> None:
    before = open_files()
    with pytest.raises(OSError, match=r"cannot listen at 192\.0\.2\.1"):
        Echo(host="192.0.2.1")
    assert open_files() == before


def test_a_short_secret_and_a_long_hello_are_refused(echo: Echo) -> None:
    with pytest.raises(ValueError, match="at least 16 random bytes"):
        Listener(lambda *_: None, lambda *_: None, lambda *_: None, b"short", None)
    with pytest.raises(ValueError, match="at least 16 random bytes"):
        Client(echo.address, secret=b"short")
    with pytest.raises(ValueError, match="a hello of 2004 bytes"):
        Client(echo.address, hello=["x" * 2000])
    Client(echo.address, hello=['"' * 740]).connection.close()  # each is sent as four


VISITOR = """
import os, socket, sys
os.setuid(65534)
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(30)
peer.connect(bytes.fromhex(sys.argv[1]))
try:
    print(len(peer.recv(100)))
except ConnectionResetError:
    print(0)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_is_not_even_challenged(echo: Echo, guest: Client) -> None:
    told = subprocess.run(
        [sys.executable, "-c", VISITOR, echo.address.abstract().hex()],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "0"
