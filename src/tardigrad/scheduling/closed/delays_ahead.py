"""Seconds of messages, as arrays."""

import numpy as np

from tardigrad.clusters import Messages
from tardigrad.core.arrays import Floats, Ints


class DelaysAhead:
    """Seconds of messages of one direction, drawn ahead for everybody."""

    def __init__(self, messages: Messages, pull: bool, workers: int) -> None:
        self._messages, self._pull = messages, pull
        self._everyone = np.arange(workers)
        self._drawn = messages.times(pull, self._everyone, np.arange(8))

    def at(self, sequences: Ints) -> Floats:
        """Of these, one of each worker and shard."""
        self._draw_to(int(sequences.max()))
        return np.take_along_axis(self._drawn, sequences[:, :, None], axis=2)[:, :, 0]

    def one(self, worker: int, shard: int, sequence: int) -> float:
        self._draw_to(sequence)
        return float(self._drawn[worker, shard, sequence])

    def _draw_to(self, sequence: int) -> None:
        while sequence >= (drawn := self._drawn.shape[2]):
            more = self._messages.times(self._pull, self._everyone, np.arange(drawn, 2 * drawn))
            self._drawn = np.concatenate([self._drawn, more], axis=2)
