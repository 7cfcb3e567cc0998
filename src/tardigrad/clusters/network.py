"""How long messages travel between workers and shards, and when shards are stopped."""

import math
from dataclasses import dataclass, fields

import numpy as np

from tardigrad.core.arrays import Floats, Ints
from tardigrad.core.checks import count, not_negative, number, positive, require
from tardigrad.core.keys import Bits, bits, exponential, key, uniform

CHUNK = 64


@dataclass(frozen=True)
class Outage:
    """A shard stops at a time, and perhaps returns; what reaches it meanwhile waits for it."""

    shard: int
    stops_s: float
    returns_s: float | None = None

    def __post_init__(self) -> None:
        count("shard", self.shard, least=0)
        not_negative("stops_s", self.stops_s)
        require(
            self.returns_s is None or self.returns_s > self.stops_s,
            f"returns_s = {self.returns_s} is not after stops_s = {self.stops_s}",
        )


@dataclass(frozen=True)
class SlowShard:
    """A shard whose messages take `factor` times as long."""

    shard: int
    factor: float

    def __post_init__(self) -> None:
        count("shard", self.shard, least=0)
        positive("factor", self.factor)


@dataclass(frozen=True)
class Network:
    """Latency, bandwidth, jitter and rare large delays, for every pair of worker and shard.

    A message to or from one of M shards takes, times the shard's factor where it is slow,

        latency_s · (1 + jitter · X) + model_bytes / (M · bandwidth_bytes_s)

    (X exponential, mean 1), and a pull rare_delay_s more with probability rare_probability. A push
    that a codec has encoded has the bytes of that form in place of model_bytes / M.
    Pairs do not queue behind each other: bandwidth_bytes_s belongs to the pair (**choice**; a link
    that all share is a smaller bandwidth). What one sends the other arrives in order (**choice**,
    as over a connection): a message that would overtake an earlier one arrives with it.

    Args:
        latency_s: seconds that even an empty message takes.
        jitter: mean of the exponential part, as a multiple of latency_s.
        bandwidth_bytes_s: bytes per second of one pair of worker and shard; needs model_bytes.
        model_bytes: bytes of all parameters; each shard carries an equal share of them.
        rare_probability: how many of the pulls are delayed (PSP-SGD: 0.0016).
        rare_delay_s: by how long (PSP-SGD: 4).
        slow_shards: shards whose messages take longer.
        outages: shards that stop, or stop and return.
        number_bytes: bytes of one parameter, 8 in float64: codecs count by numbers.
    """

    latency_s: float = 0.0
    jitter: float = 0.0
    bandwidth_bytes_s: float | None = None
    model_bytes: float | None = None
    rare_probability: float = 0.0
    rare_delay_s: float = 0.0
    slow_shards: tuple[SlowShard, ...] = ()
    outages: tuple[Outage, ...] = ()
    number_bytes: int = 4

    def __post_init__(self) -> None:
        count("number_bytes", self.number_bytes)
        not_negative("latency_s", self.latency_s)
        not_negative("jitter", self.jitter)
        not_negative("rare_delay_s", self.rare_delay_s)
        require(
            0 <= number("rare_probability", self.rare_probability) <= 1,
            f"rare_probability must be in [0, 1], got {self.rare_probability!r}",
        )
        require(
            (self.bandwidth_bytes_s is None) == (self.model_bytes is None),
            "bandwidth_bytes_s and model_bytes go together: give both or neither",
        )
        if self.bandwidth_bytes_s is not None:
            positive("bandwidth_bytes_s", self.bandwidth_bytes_s)
            positive("model_bytes", self.model_bytes)

    @property
    def push_bytes(self) -> float | None:
        """Of all shards' slices of a gradient, as they travel."""
        return self.model_bytes

    def pushing(self, push_bytes: float) -> "Network":
        """The same with gradients of so many bytes."""
        own = {field.name: getattr(self, field.name) for field in fields(Network)}
        return _EncodedPushes(**own, encoded_bytes=push_bytes)

    def realise(self, seed: int, workers: int, shards: int) -> "Messages":
        for what, named in (
            ("slow_shards", [slow.shard for slow in self.slow_shards]),
            ("outages", [outage.shard for outage in self.outages]),
        ):
            for shard in named:
                require(
                    shard < shards, f"{what} names shard {shard}, but there are {shards} shards"
                )
        return Messages(self, seed, workers, shards)


@dataclass(frozen=True)
class _EncodedPushes(Network):
    encoded_bytes: float = 0.0

    @property
    def push_bytes(self) -> float | None:
        return self.encoded_bytes


class Messages:
    """One realisation of a network, a function of (worker, shard, sequence) alone: how long each
    message takes by itself."""

    def __init__(self, network: Network, seed: int, workers: int, shards: int) -> None:
        self.network = network
        self.shards = shards
        self._pushes = _pair_streams(seed, "push", workers, shards)
        self._pulls = _pair_streams(seed, "pull", workers, shards)
        self._factor = np.ones(shards)
        for slow in network.slow_shards:
            self._factor[slow.shard] = slow.factor
        self._push_transfer_s = self._transfer_s(network.push_bytes)
        self._pull_transfer_s = self._transfer_s(network.model_bytes)
        # Draws are made a chunk of messages at a time for all shards of a worker. Two chunks are
        # kept, because a worker's shards need not be at the same sequence number.
        self._drawn: dict[tuple[bool, int, int], list[list[float]]] = {}

    def push_s(self, worker: int, shard: int, sequence: int, whole: bool = True) -> float:
        """Seconds from a worker to a shard; `sequence` counts the pair's pushes. A header alone
        (not `whole`) has no bytes to transfer."""
        took_s = self._at(False, worker, shard, sequence)
        return took_s if whole else took_s - self._push_transfer_s * float(self._factor[shard])

    def pull_s(self, worker: int, shard: int, sequence: int, whole: bool = True) -> float:
        """Seconds from a shard to a worker; `sequence` counts the pair's pulls."""
        took_s = self._at(True, worker, shard, sequence)
        return took_s if whole else took_s - self._pull_transfer_s * float(self._factor[shard])

    def _transfer_s(self, all_bytes: float | None) -> float:
        """Of one shard's part of so many bytes."""
        if all_bytes is None or self.network.bandwidth_bytes_s is None:
            return 0.0
        return all_bytes / self.shards / self.network.bandwidth_bytes_s

    def up_s(self, shard: int, at_s: float) -> float:
        """The first moment from at_s on when the shard runs; infinite where it never will."""
        for outage in sorted(self.network.outages, key=lambda o: o.stops_s):
            ends_s = math.inf if outage.returns_s is None else outage.returns_s
            if outage.shard == shard and outage.stops_s <= at_s < ends_s:
                at_s = ends_s
        return at_s

    def times(self, pull: bool, worker: int | Ints, sequences: Ints) -> Floats:
        """Seconds of a worker's messages: one row per shard, one column per sequence; of several
        workers' in one go, worker by worker."""
        model = self.network
        streams = (self._pulls if pull else self._pushes)[worker][..., None]
        took = np.full((*streams.shape[:-1], len(sequences)), float(model.latency_s))
        if model.jitter and model.latency_s:
            took += model.latency_s * model.jitter * exponential(streams, 2 * sequences)
        transfer_s = self._pull_transfer_s if pull else self._push_transfer_s
        took = (took + transfer_s) * self._factor[:, None]
        if pull and model.rare_probability:
            rare = uniform(streams, 2 * sequences + 1) < model.rare_probability
            took += model.rare_delay_s * rare
        return took

    def _at(self, pull: bool, worker: int, shard: int, sequence: int) -> float:
        chunk, at = divmod(sequence, CHUNK)
        drawn = self._drawn.get((pull, worker, chunk))
        if drawn is None:
            sequences = np.arange(chunk * CHUNK, (chunk + 1) * CHUNK)
            drawn = self.times(pull, worker, sequences).tolist()
            self._drawn[pull, worker, chunk] = drawn
            self._drawn.pop((pull, worker, chunk - 2), None)
        return drawn[shard][at]


def _pair_streams(seed: int, purpose: str, workers: int, shards: int) -> Bits:
    """One stream per worker and shard: sub-streams of the worker's."""
    own = bits(key(seed, purpose), np.arange(workers))
    return bits(own[:, None], np.arange(shards)[None, :])
