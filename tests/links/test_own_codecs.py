"""Codecs of a user's own are refused by what they make, in the simulator as on Ray."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.clusters import Network
from tardigrad.links import Encoded, send
from tardigrad.links.codec import Values
from tardigrad.tasks import quadratic


@dataclass(frozen=True)
class Wrong(tg.Codec):
    """Numbers as they are, but for one thing."""

    bytes: Any = None
    less: int = 0
    dtype: str = "float32"
    encoded: Any = None
    error_feedback: bool = False

    def encode(self, values: Values, of: tg.SliceOf) -> Encoded:
        found: Encoded = (values,) if self.encoded is None else self.encoded
        return found

    def decode(self, encoded: Encoded, length: int) -> Values:
        (values,) = encoded
        return values[: length - self.less].astype(self.dtype)

    def encoded_bytes(self, length: int, number_bytes: int) -> int:
        found: int = length * number_bytes if self.bytes is None else self.bytes
        return found


WRONG = [
    (Wrong(bytes=-5), "Wrong.encoded_bytes must be a whole number of at least 0, got -5"),
    (Wrong(bytes=2.5), "Wrong.encoded_bytes must be a whole number of at least 0, got 2.5"),
    (Wrong(bytes=3), "made 16 bytes of 4 numbers of float32, and encoded_bytes says 3"),
    (Wrong(less=1), "must return a flat array of 4 numbers of float32, got .3,. of float32"),
    (Wrong(dtype="float64"), "a flat array of 4 numbers of float32, got .4,. of float64"),
    (Wrong(encoded=[1.0]), "must return a tuple of NumPy arrays, got list"),
]


@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize(("codec", "message"), WRONG)
def test_in_the_simulator(codec: Wrong, message: str, feedback: bool) -> None:
    codec = Wrong(codec.bytes, codec.less, codec.dtype, codec.encoded, feedback)
    cluster, rule = tg.Gamma(workers=2), tg.rules.sgd(0.1)
    asked: Any = {"cluster": cluster, "updates": 5, "link": tg.Full(codec=codec)}
    with pytest.raises(ValueError, match=message):
        tg.simulate(quadratic(dimension=4, dtype="float32"), rule, **asked)


def test_where_a_worker_or_a_network_asks() -> None:
    with pytest.raises(ValueError, match="flat array of 4 numbers"):
        send(Wrong(less=2), np.zeros(4, np.float32), tg.SliceOf(0, 0, 0))
    network = Network(bandwidth_bytes_s=1e6, model_bytes=400)
    cluster = tg.Gamma(workers=2, network=network)
    with pytest.raises(ValueError, match=r"Wrong\.encoded_bytes"):
        tg.schedule(cluster=cluster, updates=5, link=tg.Full(codec=Wrong(bytes=-5)))
