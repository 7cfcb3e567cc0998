"""Safeguards of what workers keep from row to row, of interrupts, steps and weights, taken out."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from tardigrad.links import Encoded, Sent
from tardigrad.policies.machine import Arrival, Drop, PushHalf, ShardCommand
from tardigrad.protocol import calls, coordinator, replacing
from tardigrad.protocol.channels import WorkerChannel
from tardigrad.protocol.log import LogEntry, write_entry
from tardigrad.protocol.messages import (
    Applied,
    Came,
    Completed,
    Deal,
    PushHeader,
    RowGiven,
)
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.protocol.worker_outputs import Compute, WorkerOutput
from tardigrad.protocol.worker_session import WorkerSession
from tardigrad.recording.kept_states import KeptState
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.replica import ShardReplica
from tardigrad.recording.sent_slices import SliceErrors
from tardigrad.recording.setup import RunSetup, WorkerKeeps
from tardigrad.runtime import shard_process
from tardigrad.runtime.worker_process import ComputedGradient, WorkerProcess

Mutation = Callable[[], AbstractContextManager[Any]]

# What is written to logs.


def _written(change: Callable[[Any], Any]) -> AbstractContextManager[Any]:
    """Logs in which headers and decisions stand as `change` makes them."""

    def write(entry: LogEntry) -> bytes:
        event = entry.event
        if isinstance(event, Came) and isinstance(event.message.body, PushHeader):
            message = event.message._replace(body=change(event.message.body))
            event = event._replace(message=message)
        elif isinstance(event, Completed):
            event = event._replace(header=change(event.header))
        decided = [change(decision) for decision in entry.decided]
        return write_entry(entry._replace(event=event, decided=decided))

    return patch.object(shard_process, "write_entry", write)


def _without(kind: type[Any], **fields: Any) -> Mutation:
    """Logs in which what is of this kind says nothing of these fields."""

    def change(one: Any) -> Any:
        return one._replace(**fields) if isinstance(one, kind) else one

    return lambda: _written(change)


# What workers keep.


def _lives_go_on_silently() -> AbstractContextManager[Any]:
    computed = WorkerSession.computed

    def silent(
        self: WorkerSession, loss: float, finite: bool, end_s: float, now_s: float
    ) -> list[WorkerOutput]:
        self._begins_anew = False
        return computed(self, loss, finite, end_s, now_s)

    return patch.object(WorkerSession, "computed", silent)


def _states_follow_what_is_not_finite() -> AbstractContextManager[Any]:
    gradient = WorkerProcess.gradient

    def kept(self: WorkerProcess, compute: Compute) -> ComputedGradient | None:
        made = gradient(self, compute)
        if made is not None:
            self._state = made.state
        return made

    return patch.object(WorkerProcess, "gradient", kept)


def _successors_go_on() -> AbstractContextManager[Any]:
    """A process that takes a dead one's place has that one's state, and says that it begins."""
    begin, computed = WorkerProcess.__init__, WorkerProcess.computed
    last: dict[tuple[int, int], Any] = {}

    def find(self: WorkerProcess, setup: RunSetup, *given: Any, **named: Any) -> None:
        begin(self, setup, *given, **named)
        self._state = last.get((id(setup), self.worker), self._state)

    def keep(
        self: WorkerProcess,
        compute: Compute,
        made: ComputedGradient | None,
        end_s: float,
        now_s: float,
    ) -> list[WorkerOutput]:
        out = computed(self, compute, made, end_s, now_s)
        last[id(self.setup), self.worker] = self._state
        return out

    return patch.multiple(WorkerProcess, __init__=find, computed=keep)


def _after_interrupts(change: Callable[[WorkerProcess, ComputedGradient], None]) -> Mutation:
    """What has come too late, after an interrupt, leaves something behind."""

    def mutated() -> AbstractContextManager[Any]:
        computed = WorkerProcess.computed

        def late(
            self: WorkerProcess,
            compute: Compute,
            made: ComputedGradient | None,
            end_s: float,
            now_s: float,
        ) -> list[WorkerOutput]:
            if made is not None and self.session.interrupted:
                change(self, made)
            return computed(self, compute, made, end_s, now_s)

        return patch.object(WorkerProcess, "computed", late)

    return mutated


def _state_follows(process: WorkerProcess, made: ComputedGradient) -> None:
    process._state = made.state


def _error_follows(process: WorkerProcess, made: ComputedGradient) -> None:
    if process._errors is not None:
        process._errors._error = process._errors.compensated(made.grad)


# Codecs.


def _held_back_is_lost() -> AbstractContextManager[Any]:
    push = SliceErrors.push

    def lost(self: SliceErrors, header: PushHeader, shard: int, grad: Tensor) -> Sent | None:
        return push(self, header, shard, grad if header.crosses else torch.zeros_like(grad))

    return patch.object(SliceErrors, "push", lost)


def _errors_outlive_their_worker() -> AbstractContextManager[Any]:
    push = SliceErrors.push

    def on(self: SliceErrors, header: PushHeader, shard: int, grad: Tensor) -> Sent | None:
        return push(self, header._replace(fresh=False), shard, grad)

    return patch.object(SliceErrors, "push", on)


def _encoded_again() -> AbstractContextManager[Any]:
    """What is said again is encoded again, with the error as it is by now."""
    encoded = WorkerProcess.encoded

    def anew(self: WorkerProcess, push: PushHeader, shard: int) -> Encoded | None:
        if self._errors is not None and push.has_numbers:
            part = self._kept[push.row].grad[self.setup.sharding.slice(shard)]
            said = self.__dict__.setdefault("said", set())
            made = self._errors.push(push, shard, part) if (push.row, shard) in said else None
            said.add((push.row, shard))
            if made is not None:
                return made.encoded
        return encoded(self, push, shard)

    return patch.object(WorkerProcess, "encoded", anew)


def _every_cut_counts() -> AbstractContextManager[Any]:
    return patch.object(RecoveredRun, "_has_states", lambda self, disk, cut: True)


@contextmanager
def _cuts_have_no_states() -> Iterator[None]:
    """And they count, or they would be passed over."""

    def stateless(number: Any, places: Any, unsent: Any, states: Any) -> calls.FinishCut:
        return calls.FinishCut(number, places, unsent)

    with patch.object(coordinator, "FinishCut", stateless), _every_cut_counts():
        yield


def _cuts_have_no_errors() -> AbstractContextManager[Any]:
    kept = WorkerProcess.kept

    def state_alone(self: WorkerProcess) -> KeptState | None:
        found = kept(self)
        if found is None:
            return None
        begin: WorkerKeeps = self.setup.begin_state()
        return KeptState(found.worker, found.state._replace(error=begin.error))

    return patch.object(WorkerProcess, "kept", state_alone)


# Interrupts.


def _pushed_all_the_same() -> AbstractContextManager[Any]:
    """A row that was interrupted is pushed as if it had been computed."""
    send = WorkerSession._send

    def whole(self: WorkerSession, shard: int, body: Any) -> None:
        if isinstance(body, PushHeader):
            body = body._replace(interrupted=False)
        send(self, shard, body)

    return patch.object(WorkerSession, "_send", whole)


def _interrupted_by_another_name() -> AbstractContextManager[Any]:
    interrupted = PushHalf.on_interrupted

    def old(self: PushHalf, arrival: Arrival, now_s: float) -> list[ShardCommand]:
        _, *rest = interrupted(self, arrival, now_s)
        return [Drop(arrival.row, "old version"), *rest]

    return patch.object(PushHalf, "on_interrupted", old)


def _interrupts_outlive_releases() -> AbstractContextManager[Any]:
    """Who was released again since is interrupted at what it has just been given."""
    release = ShardSession._release

    def still(
        self: ShardSession, worker: int, channel: WorkerChannel, version: int, carries: bool
    ) -> None:
        stop = channel.stop
        release(self, worker, channel, version, carries)
        channel.stop = stop

    return patch.object(ShardSession, "_release", still)


def _old_interrupts_are_heard() -> AbstractContextManager[Any]:
    """A worker believes a message from before its last release: messages overtake each other."""
    hear = WorkerSession.hear

    def always(self: WorkerSession, message: Any, payloads: Any, now_s: float) -> Any:
        return hear(self, message._replace(sequence=10**9), payloads, now_s)

    return patch.object(WorkerSession, "hear", always)


# Steps and weights.


def _as_many_steps_as_ever() -> AbstractContextManager[Any]:
    gradient = WorkerProcess.gradient

    def most(self: WorkerProcess, compute: Compute) -> ComputedGradient | None:
        deal = compute.deal
        if deal is not None:
            deal = Deal(self.setup.work.batches, *deal[1:])
        return gradient(self, compute._replace(deal=deal))

    return patch.object(WorkerProcess, "gradient", most)


def _all_count_the_same() -> AbstractContextManager[Any]:
    apply = ShardReplica._apply

    def mean(self: ShardReplica, applied: Applied, headers: Any, now_s: float) -> None:
        apply(self, applied._replace(weights=()), headers, now_s)

    return patch.object(ShardReplica, "_apply", mean)


MUTATIONS_OF_ROWS: dict[str, Mutation] = {
    "states: cuts have them": _cuts_have_no_states,
    "states: cuts without one that was gone on with do not count": _every_cut_counts,
    "states: a new life says that it begins anew": _lives_go_on_silently,
    "states: a new life does begin anew": _successors_go_on,
    "states: logs say where they begin anew": _without(PushHeader, fresh=False),
    "states: who goes on with one is given it": lambda: patch.object(
        replacing, "BeginWork", lambda start, kept: calls.BeginWork(start)
    ),
    "states: what was not finite leaves them": _states_follow_what_is_not_finite,
    "states: what was interrupted leaves them": _after_interrupts(_state_follows),
    "codecs: what is held back stays with its worker": _held_back_is_lost,
    "codecs: an error begins anew at each shard": _errors_outlive_their_worker,
    "codecs: what was interrupted leaves errors": _after_interrupts(_error_follows),
    "codecs: what is said again was encoded once": _encoded_again,
    "codecs: cuts have errors": _cuts_have_no_errors,
    "interrupts: a row says that it was": _pushed_all_the_same,
    "interrupts: logs say which rows were": _without(PushHeader, interrupted=False),
    "interrupts: rows are dropped as such": _interrupted_by_another_name,
    "interrupts: void once a worker is released again": _interrupts_outlive_releases,
    "interrupts: since the last release alone": _old_interrupts_are_heard,
    "steps: a worker takes those that it was dealt": _as_many_steps_as_ever,
    "steps: logs say how many were dealt": _without(RowGiven, deal=None),
    "weights: shards go by them": _all_count_the_same,
    "weights: logs have them": _without(Applied, weights=()),
}
