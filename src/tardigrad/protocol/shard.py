"""One shard's side of the protocol: the policy's push half, and what becomes of its commands.

Every driver feeds it events, and is called back for what was decided, in order.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tardigrad.policies import Apply, Arrival, Drop, Policy, Release, SetTimer
from tardigrad.policies.machine import ShardCommand


@dataclass(frozen=True, slots=True)
class ShardOutputs:
    """What a driver does with a shard's decisions. Each is called with the shard and the time."""

    applied: Callable[[int, Sequence[int], float, float, tuple[float, ...]], None]
    """(shard, rows, scale, now_s, weights)"""
    dropped: Callable[[int, int, str, float], None]
    """(shard, row, reason, now_s)"""
    released: Callable[[int, int, int, float], None]
    """(shard, worker, version, now_s)"""
    timer: Callable[[int, float, int, float], None]
    """(shard, seconds, token, now_s)"""
    ended: Callable[[int], None]
    """(shard): its last version is made."""
    interrupted: Callable[[int, int, int, float], None]
    """(shard, worker, step, now_s)"""


class ShardControl:
    """`version` is as of the command that is being carried out: a release may stand before or after
    an `Apply`, and carries the version of its place.

    A shard that has made `updates` versions applies nothing more. It answers whoever pushes, so
    that the other shards can come as far.

    Methods that take an event return how many more releases than gradients were decided on.
    """

    __slots__ = ("half", "outputs", "shard", "updates", "version")

    def __init__(
        self,
        policy: Policy,
        shard: int,
        workers: Iterable[int],
        updates: int | None,
        outputs: ShardOutputs,
    ) -> None:
        self.half = policy.push_half(workers)
        self.shard = shard
        self.updates = updates
        self.outputs = outputs
        self.version = 0

    @property
    def done(self) -> bool:
        return self.version == self.updates

    def push(self, arrival: Arrival, now_s: float) -> int:
        if self.version == self.updates:
            return self.header(arrival, now_s)
        half = self.half
        if half.requests:
            return self._carry_out(half.on_push(arrival, now_s), now_s)
        # Mostly nobody has asked for a version: then this is `on_push` without another call.
        return self._carry_out(half.pushed(arrival, now_s), now_s)

    def header(self, arrival: Arrival, now_s: float) -> int:
        """A push of which there is nothing to apply: a link held it back, or the shard is done."""
        return self._carry_out(self.half.on_header(arrival, now_s), now_s)

    def interrupted(self, arrival: Arrival, now_s: float) -> int:
        """A push without a gradient, because its worker was interrupted."""
        return self._carry_out(self.half.on_interrupted(arrival, now_s), now_s)

    def timer(self, token: int, now_s: float) -> int:
        return self._carry_out(self.half.on_timer(token, now_s), now_s)

    def request(self, worker: int, at_least: int, now_s: float) -> int:
        return self._carry_out(self.half.on_request(worker, at_least, now_s), now_s)

    def join(self, worker: int, now_s: float, stay: int = 0, step: int = 0) -> int:
        return self._carry_out(self.half.on_join(worker, now_s, stay, step), now_s)

    def leave(self, worker: int, now_s: float) -> int:
        return self._carry_out(self.half.on_leave(worker, now_s), now_s)

    def _carry_out(self, commands: Sequence[ShardCommand], now_s: float) -> int:
        extra, shard, outputs = 0, self.shard, self.outputs
        for command in commands:
            if isinstance(command, Release):
                extra += 1
                outputs.released(shard, command.worker, self.version, now_s)
            elif isinstance(command, Apply):
                rows = command.rows
                self.version = version = self.version + 1
                extra -= len(rows)
                outputs.applied(shard, rows, command.scale, now_s, command.weights)
                if version == self.updates:
                    outputs.ended(shard)
            elif isinstance(command, Drop):
                extra -= 1
                outputs.dropped(shard, command.row, command.reason, now_s)
            elif isinstance(command, SetTimer):
                outputs.timer(shard, command.seconds, command.token, now_s)
            else:
                outputs.interrupted(shard, command.worker, command.step, now_s)
        return extra
