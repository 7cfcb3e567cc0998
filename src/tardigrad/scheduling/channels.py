"""When what is sent arrives: between a worker and a shard, first in first out."""

from collections.abc import Callable


class Channels:
    """The channels of one direction: from every worker to every shard, or back.

    What is sent later over a channel arrives no earlier, however long each message takes by itself:

        arrives = max(sent + seconds, arrival of the one before it)

    **Choice**: so it is over a connection, and on Ray. A message that takes very long therefore
    holds up those behind it. A stay of a worker has channels of its own: one that comes back does
    not wait for what was on its way before it left.

    Args:
        seconds: that the message of this (worker, shard, sequence) takes by itself, whole or as a
            header alone.
    """

    def __init__(self, seconds: Callable[[int, int, int, bool], float]) -> None:
        self._seconds = seconds
        self._sent: dict[tuple[int, int], int] = {}
        self._last_s: dict[tuple[int, int, int], float] = {}

    def send(self, worker: int, shard: int, stay: int, now_s: float, whole: bool) -> float:
        """When the next message arrives, if it is sent now."""
        pair = (worker, shard)
        sequence = self._sent[pair] = self._sent.get(pair, -1) + 1
        at_s = now_s + self._seconds(worker, shard, sequence, whole)
        channel = (worker, shard, stay)
        last_s = self._last_s.get(channel, at_s)
        if last_s > at_s:
            at_s = last_s
        self._last_s[channel] = at_s
        return at_s

    def behind(self, worker: int, shard: int, stay: int, at_s: float) -> float:
        """When that arrives which would by itself at `at_s`."""
        return max(at_s, self._last_s.get((worker, shard, stay), at_s))
