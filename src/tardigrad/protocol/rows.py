"""Rows, as shard 0 hands them out: which gradient a worker's next one is, and of which batches."""

from tardigrad.policies.pace import Pace
from tardigrad.protocol.messages import Deal, PushHeader, RowGiven


class RowsGiven:
    """The last row of each worker: given once, told as often as needed.

    Batches are dealt in the order of rows, to all workers together and to each in its own order,
    whatever becomes of them. Without a pace that follows from rows and steps, and is not told.
    """

    def __init__(self, pace: Pace | None = None) -> None:
        self._pace = pace
        self._given: dict[int, RowGiven] = {}
        self.rows = 0
        """How many were given."""
        self._batches = 0
        self._own: dict[int, int] = {}

    def give(self, worker: int, step: int) -> RowGiven | None:
        """The row of a worker's next gradient; None: it has been given before."""
        given = self._given.get(worker)
        if given is not None and given.step == step:
            return None
        given = RowGiven(worker, step, self.rows, self._deal(worker))
        self._given[worker] = given
        self.rows += 1
        return given

    def of(self, worker: int) -> RowGiven | None:
        return self._given.get(worker)

    def heard(self, push: PushHeader) -> None:
        # One that was interrupted has not made its steps: it does not tell how fast its worker is.
        if self._pace is not None and not push.interrupted:
            steps = self._pace.most if push.deal is None else push.deal.steps
            self._pace.heard(push.worker, steps, push.end_s - push.start_s)

    def left(self, worker: int) -> None:
        if self._pace is not None:
            self._pace.left(worker)

    def _deal(self, worker: int) -> Deal | None:
        if self._pace is None:
            return None
        own = self._own.get(worker, 0)
        deal = Deal(self._pace.steps(worker), self._batches, own)
        self._batches += deal.steps
        self._own[worker] = own + deal.steps
        return deal
