"""When a worker sends something again to a shard."""

from dataclasses import dataclass

from tardigrad.protocol.worker_session import WorkerSession

RESEND_S = (2.0, 30.0)
"""What a shard has not answered is said again after so long, at most so seldom. A connection loses
nothing, but a shard ignores what it cannot take yet, and its process may be another one by now."""

CHECK_S = RESEND_S[0] / 4
"""How often it is looked whether anything is due."""


@dataclass
class _Awaited:
    """What is awaited of a shard, since when, and after how long it is asked for."""

    what: tuple[int, int] | None = None
    since_s: float = 0.0
    wait_s: float = RESEND_S[0]


class Resending:
    """A worker that waits for a shard asks again, whatever it waits for: that what it said is
    acknowledged, or, with all of it acknowledged, for a release that may have been lost with the
    process that had sent it."""

    def __init__(self, session: WorkerSession, shards: int) -> None:
        self._session = session
        self._awaited = [_Awaited() for _ in range(shards)]

    def heard(self, shard: int) -> None:
        """It is there: should it have to be asked again, then soon."""
        self._awaited[shard].wait_s = RESEND_S[0]

    def due(self, now_s: float) -> list[int]:
        """The shards to which all of `WorkerSession.again` is to be said now."""
        due = []
        for shard, awaited in enumerate(self._awaited):
            what = self._session.awaits(shard)
            if what is None or what != awaited.what:
                self._awaited[shard] = _Awaited(what, now_s)
            elif now_s - awaited.since_s >= awaited.wait_s:
                awaited.since_s = now_s
                awaited.wait_s = min(2 * awaited.wait_s, RESEND_S[1])
                due.append(shard)
        return due
