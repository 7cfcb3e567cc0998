"""Pull halves that start before every shard has answered."""

import math
from abc import abstractmethod

from tardigrad.core.checks import not_negative, number, require
from tardigrad.policies.machine import PullHalf, Request, SetTimer, Start, WorkerCommand


def check_pulling(pull: float, pull_timeout_s: float) -> None:
    require(
        0 < number("pull", pull) <= 1,
        f"pull is the share of all shards to wait for, in (0, 1], got {pull!r}: use 0.9 for 90%",
    )
    not_negative("pull_timeout_s", pull_timeout_s)


class PullShare(PullHalf):
    """Start when a share of the shards has come, after up to `timeout_s` more for the others.

    Which answers count (`came`) is for the two kinds below to say. A worker that returns has lost
    its view and waits for every shard once.
    """

    def __init__(self, shards: int, share: float, timeout_s: float) -> None:
        super().__init__(shards)
        # Rounded first, because 0.55 × 100 is 55.000000000000007.
        self.share = math.ceil(round(share * shards, 9))
        self.timeout_s = timeout_s
        self.came: set[int] = set()
        self.waiting = False
        self._needed = self.share
        self._wait = 0  # numbers the waits, so that a timer of an earlier one is told apart
        self._timed = False

    @abstractmethod
    def round(self) -> int:
        """The round to stamp the next gradient with, the worker being about to start it."""

    def await_shards(self, came: set[int], needed: int) -> None:
        self.came = came
        self.waiting = True
        self._needed = needed
        self._wait += 1
        self._timed = False

    def review(self) -> list[WorkerCommand]:
        """Start, set the timer, or go on waiting."""
        if not self.waiting or len(self.came) < self._needed:
            return []
        if not self.timeout_s or len(self.came) == len(self.have):
            return self._start()
        if not self._timed:
            self._timed = True
            return [SetTimer(self.timeout_s, self._wait)]
        return []

    def timer(self, token: int, now_s: float) -> list[WorkerCommand]:
        return self._start() if self.waiting and token == self._wait else []

    def _start(self) -> list[WorkerCommand]:
        self.waiting = False
        return [Start(self.round())]


class PullRound(PullShare):
    """PSP's partial pulling, for shards that broadcast every version: blocks of this round count.

    While it waits for its round t, a block of a version below t is dropped. **Choice**: what comes
    while the worker computes round t is judged by t, not yet by t + 1, so that a block which comes
    just after the start is in the next view; else a shard that is always last to answer would never
    be seen again.

    A shard that lags, after an outage say, may need gradients when a share of the others has made
    its last version, and nobody will make the worker's round any more. **Choice**: the worker then
    asks the shards that go on for what they have, and goes on at that, stamped with the last round.
    """

    def __init__(self, shards: int, share: float, timeout_s: float, catch_up: bool) -> None:
        super().__init__(shards, share, timeout_s)
        self.catch_up = catch_up
        self.current = 0
        self._jump = False
        """The next start is in the newest round whose share has come, whatever came before."""
        self._ended: set[int] = set()

    def pulled(self, shard: int, version: int, now_s: float) -> list[WorkerCommand]:
        if version < self.current:
            return []
        if version > self.have[shard]:
            self.have[shard] = version
        self.came.add(shard)
        return self.review()

    def ended(self, shard: int) -> None:
        self._ended.add(shard)

    def finished(self, now_s: float) -> list[WorkerCommand]:
        self.current += 1
        newest = max(self.have)
        if self._ended and self.current > newest:
            self._await_all(self._ended)
            return self._ask()
        fresh: set[int] = set()
        if newest >= self.current:  # which is rare
            fresh = {s for s, version in enumerate(self.have) if version >= self.current}
        self.await_shards(fresh, self.share)
        return self.review()

    def rejoined(self) -> None:
        self._await_all(set())

    def replaced(self) -> list[WorkerCommand]:
        """A broadcast may be all there is to come of a shard that waits for this very worker, and
        the dead one may have confirmed it; so all are asked."""
        self.rejoined()
        return self._ask()

    def round(self) -> int:
        if self.catch_up or self._jump:
            self.current = sorted(self.have, reverse=True)[self.share - 1]
            self._jump = False
        return self.current

    def _ask(self) -> list[WorkerCommand]:
        """Every shard that goes on, for whatever version it has. It is 1 that is asked for, not 0,
        which is how a worker asks to begin (`RampUp`); these have had gradients for it."""
        return [Request(s, 1) for s in range(len(self.have)) if s not in self._ended]

    def _await_all(self, came: set[int]) -> None:
        self.current = 0
        self._jump = True
        self.await_shards(set(came), len(self.have))


class PullAnswers(PullShare):
    """Partial pulling from shards that answer each push once: answers to the newest push count.

    A late answer to an earlier push brings news all the same, and is in the next view.
    """

    def __init__(self, shards: int, share: float, timeout_s: float) -> None:
        super().__init__(shards, share, timeout_s)
        self._owed = [0] * shards

    def pulled(self, shard: int, version: int, now_s: float) -> list[WorkerCommand]:
        self.have[shard] = max(self.have[shard], version)
        self._owed[shard] = max(0, self._owed[shard] - 1)
        if self._owed[shard]:
            return []
        self.came.add(shard)
        return self.review()

    def finished(self, now_s: float) -> list[WorkerCommand]:
        self._owed = [owed + 1 for owed in self._owed]
        self.await_shards(set(), self.share)
        return []

    def rejoined(self) -> None:
        self._owed = [1] * len(self.have)
        self.await_shards(set(), len(self.have))

    def round(self) -> int:
        return max(self.have)
