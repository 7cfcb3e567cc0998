"""A link at work in the event loop: who holds which version, what was sent last, what is unsent."""

from collections.abc import Callable
from dataclasses import replace

from tardigrad.links import UNSENT, Gate, Link
from tardigrad.policies import Arrival
from tardigrad.protocol.worker import WorkerControl
from tardigrad.scheduling.events import Reply
from tardigrad.scheduling.recorder import Recorder


class Wire:
    """Asks the link's gate at every opportunity, and keeps what follows from its answers.

    Args:
        deviation: a shard's v̄ now; asked at every reply. None: the link does not read it.
    """

    def __init__(
        self,
        link: Link,
        gate: Gate,
        recorder: Recorder,
        deviation: Callable[[int], float] | None = None,
    ) -> None:
        workers, shards = recorder.workers, recorder.shards
        self.reapply = link.on_drop == "reapply"
        self.gate = gate
        self.recorder = recorder
        self.deviation = deviation
        self.view = [[0] * shards for _ in range(workers)]
        """The version of each shard in each worker's view: what has crossed, not what headers say.
        """
        self._heard = [[1.0] * shards for _ in range(workers)]
        self._sent: dict[tuple[int, int], Arrival] = {}
        self._unsent: dict[tuple[int, int], list[int]] = {}
        self._fresh: set[tuple[int, int]] = set()

    def push(self, shard: int, arrival: Arrival, now_s: float) -> tuple[Arrival | None, bool]:
        """What reaches the shard (None: a header without anything to apply), and whether the
        gradient itself crosses."""
        worker, row = arrival.worker, arrival.row
        pair = (worker, shard)
        crosses = self.gate.push(worker, shard, self._heard[worker]) or pair not in self._sent
        record = self.recorder
        record.crossing(worker, shard, False, crosses, now_s)
        if crosses:
            record.hold(row)
            if self.reapply:
                record.hold(row)
                if pair in self._sent:
                    record.let_go(self._sent[pair].row)
            elif pair in self._unsent:
                record.merge(shard, row, self._unsent.pop(pair), now_s)
            self._sent[pair] = arrival
            return arrival, True
        if self.reapply:
            last = self._sent[pair]
            record.hold(last.row)
            # The header is this round's; what is applied, and how late it is, is the older one's.
            return replace(arrival, row=last.row, read=last.read), False
        record.hold(row)
        self._unsent.setdefault(pair, []).append(row)
        return None, False

    def reply(
        self, worker: int, shard: int, version: int, now_s: float, current: bool = True
    ) -> tuple[bool, float]:
        """Whether a reply carries the parameters, and the deviation that rides on it; `current`
        unless it is for a stay of the worker that has ended."""
        crosses = self.gate.pull(worker, shard, self._heard[worker])
        # One that came back has nothing to compute with.
        if current and (worker, shard) in self._fresh:
            self._fresh.discard((worker, shard))
            crosses = True
        deviation = 1.0 if self.deviation is None else self.deviation(shard)
        self.recorder.crossing(worker, shard, True, crosses, now_s, deviation)
        if crosses:
            self.recorder.sent(worker, shard, version)
        return crosses, deviation

    def pulled(
        self, control: WorkerControl, stay: int, shard: int, reply: Reply, now_s: float
    ) -> None:
        """A reply has come, for this stay of a worker."""
        worker, (version, whole, deviation) = control.worker, reply
        if not control.here(stay):
            if whole:
                self._receive(worker, shard, version, kept=False)
            return
        # The policy goes by the header; the view has the version only if the tensor came with it,
        # and has it before the worker starts.
        commands = control.hear(shard, version, now_s)
        self._heard[worker][shard] = deviation
        if whole:
            self._receive(worker, shard, version, kept=control.have[shard] == version)
        control.carry_out(commands, now_s)

    def _receive(self, worker: int, shard: int, version: int, kept: bool) -> None:
        """Parameters have come, and the worker has put them into its view or not."""
        if kept:
            self.view[worker][shard] = version
        self.recorder.received(worker, shard, version, kept)

    def leave(self, worker: int, now_s: float) -> None:
        """A worker that goes takes with it what it had not sent; nobody remembers the rest."""
        for shard in range(self.recorder.shards):
            pair = (worker, shard)
            for row in self._unsent.pop(pair, []):
                self.recorder.drop(shard, row, UNSENT, now_s)
            sent = self._sent.pop(pair, None)
            if sent is not None and self.reapply:
                self.recorder.let_go(sent.row)
            self._heard[worker][shard] = 1.0
            self._fresh.add(pair)
