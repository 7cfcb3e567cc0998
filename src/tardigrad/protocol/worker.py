"""One worker's side of the protocol: the policy's pull half, and what becomes of its commands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tardigrad.policies import Policy, Request, Start
from tardigrad.policies.machine import WorkerCommand


@dataclass(frozen=True, slots=True)
class WorkerOutputs:
    """What a driver does with a worker's decisions. Each is called with the worker and the time."""

    start: Callable[[int, int, float], None]
    """(worker, stamp, now_s): begin the next gradient at what the worker has."""
    request: Callable[[int, int, int, float], None]
    """(worker, shard, at_least, now_s)"""
    timer: Callable[[int, float, int, float], None]
    """(worker, seconds, token, now_s)"""


class WorkerControl:
    """`stay` numbers the times that it has been there; what belongs to an earlier one is void."""

    __slots__ = ("half", "outputs", "present", "stay", "step", "updates", "worker")

    def __init__(
        self, policy: Policy, worker: int, shards: int, updates: int | None, outputs: WorkerOutputs
    ) -> None:
        self.half = policy.pull_half(shards)
        self.worker = worker
        self.updates = updates
        self.outputs = outputs
        self.step = 0
        """Of its next gradient; the driver counts it on."""
        self.present = True
        self.stay = 0

    @property
    def have(self) -> list[int]:
        """The version of each shard that it has."""
        return self.half.have

    def here(self, stay: int) -> bool:
        """Whether this stay has not ended."""
        return stay == self.stay and self.present

    def begin(self, now_s: float) -> None:
        self.carry_out(self.half.begin(), now_s)

    def pulled(self, shard: int, version: int, now_s: float) -> None:
        if version == self.updates:
            self.half.ended(shard)
        for command in self.half.pulled(shard, version, now_s):
            if isinstance(command, Start):  # by far the most: without another call
                self.outputs.start(self.worker, command.stamp, now_s)
            else:
                self.carry_out((command,), now_s)

    def hear(self, shard: int, version: int, now_s: float) -> list[WorkerCommand]:
        """What to `carry_out` when the driver has put what came into the view, or not: `have` says
        whether it is wanted, and a link may have held the tensor back."""
        if version == self.updates:
            self.half.ended(shard)
        return self.half.pulled(shard, version, now_s)

    def finished(self, now_s: float) -> None:
        commands = self.half.finished(now_s)
        if commands:
            self.carry_out(commands, now_s)

    def go_on(self, now_s: float) -> None:
        self.carry_out(self.half.go_on(now_s), now_s)

    def timer(self, token: int, now_s: float) -> None:
        self.carry_out(self.half.timer(token, now_s), now_s)

    def replaced(self, now_s: float) -> None:
        """It died, and another process is in its place."""
        self.carry_out(self.half.replaced(), now_s)

    def leave(self) -> None:
        self.present = False

    def join(self) -> None:
        self.present = True
        self.stay += 1
        self.half.rejoined()

    def carry_out(self, commands: Sequence[WorkerCommand], now_s: float) -> None:
        for command in commands:
            if isinstance(command, Start):
                self.outputs.start(self.worker, command.stamp, now_s)
            elif isinstance(command, Request):
                self.outputs.request(self.worker, command.shard, command.at_least, now_s)
            else:
                self.outputs.timer(self.worker, command.seconds, command.token, now_s)
