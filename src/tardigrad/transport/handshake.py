"""Who may come in: both sides prove that they know the run's secret, without saying it.

    listener → peer:  challenge, nonce_l
    peer → listener:  proof, nonce_p, hello, HMAC(secret, "peer", name, nonce_l, nonce_p, hello)
    listener → peer:  welcome, HMAC(secret, "listener", name, nonce_l, nonce_p, hello)

HMAC is HMAC-SHA256. Both nonces are fresh, so that no recorded proof is good a second time; the
roles differ, so that none can be sent back to its sender; `name` is the listener's own, so that
nobody takes another listener for it that has got its port meanwhile. What follows is neither
encrypted nor signed.
"""

import hmac
import json
import secrets
from typing import Any

from tardigrad.core.checks import require

PROTOCOL = 1
NONCE_BYTES = 32
LEAST_SECRET_BYTES = 16
MOST_HELLO_BYTES = 1500
"""As JSON. It fits into what is read of a stranger, however much of it must be escaped."""


class HandshakeError(PermissionError):
    """A peer that could not prove that it knows the secret."""


def check_secret(secret: bytes) -> None:
    require(
        isinstance(secret, bytes) and len(secret) >= LEAST_SECRET_BYTES,
        f"the secret must be at least {LEAST_SECRET_BYTES} random bytes: secrets.token_bytes(32)",
    )


def refusal(reason: str) -> list[Any]:
    return ["refused", reason]


class ListenerHandshake:
    """The listener's side, for one peer."""

    def __init__(self, secret: bytes, name: str) -> None:
        self._secret, self._name = secret, name
        self._nonce = secrets.token_hex(NONCE_BYTES)

    def challenge(self) -> list[Any]:
        return ["challenge", PROTOCOL, self._nonce]

    def check(self, header: list[Any]) -> tuple[list[Any], list[Any]]:
        """The peer's hello, and what to answer."""
        _, nonce, hello, proof = _fields(header, "proof", [str, str, str])
        said = (self._name, self._nonce, nonce, hello)
        if not hmac.compare_digest(_proof(self._secret, "peer", *said).encode(), proof.encode()):
            raise HandshakeError(
                "the secret is another one, or the listener: another has got its port"
            )
        said_hello = json.loads(hello)
        if not isinstance(said_hello, list):
            raise HandshakeError("a hello must be a list")
        return said_hello, ["welcome", _proof(self._secret, "listener", *said)]


class PeerHandshake:
    """The side of whoever connects."""

    def __init__(self, secret: bytes, name: str, hello: list[Any]) -> None:
        self._secret, self._name = secret, name
        self._hello = json.dumps(hello)
        size = len(self._hello)
        require(
            size <= MOST_HELLO_BYTES,
            f"a hello of {size} bytes: at most {MOST_HELLO_BYTES} may come, say more afterwards",
        )
        self._nonce = secrets.token_hex(NONCE_BYTES)
        self._theirs = ""

    def answer(self, header: list[Any]) -> list[Any]:
        _, protocol, self._theirs = _fields(header, "challenge", [int, str])
        if protocol != PROTOCOL:
            raise HandshakeError(
                f"the listener speaks version {protocol} of the handshake, this is {PROTOCOL}: "
                "install the same tardigrad on all nodes"
            )
        return ["proof", self._nonce, self._hello, self._prove("peer")]

    def check(self, header: list[Any]) -> None:
        _, proof = _fields(header, "welcome", [str])
        if not hmac.compare_digest(self._prove("listener").encode(), proof.encode()):
            raise HandshakeError("the listener does not know this run's secret")

    def _prove(self, role: str) -> str:
        return _proof(self._secret, role, self._name, self._theirs, self._nonce, self._hello)


def _fields(header: list[Any], kind: str, types: list[type]) -> list[Any]:
    if header[:1] == ["refused"] and [type(field) for field in header[1:]] == [str]:
        raise HandshakeError(header[1])
    if header[:1] != [kind] or [type(field) for field in header[1:]] != types:
        raise HandshakeError(f"a handshake without its {kind}")
    return header


def _proof(secret: bytes, role: str, *fields: str) -> str:
    message = json.dumps([role, *fields]).encode()
    return hmac.digest(secret, message, "sha256").hex()
