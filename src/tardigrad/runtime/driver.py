"""The driver: carries out on Ray what a `Coordinator` decides."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError

from tardigrad.core.computer import computer
from tardigrad.protocol.calls import (
    Answer,
    Ask,
    CallOutcome,
    Dead,
    Effect,
    EndProcess,
    FinishCut,
    MakeShards,
    MakeWorkers,
    NextCut,
    Process,
    Recover,
    Show,
    TakeEpoch,
    Tell,
    WaitForDeaths,
)
from tardigrad.protocol.coordinator import Coordinator
from tardigrad.recording.cuts import finish_cut, next_cut
from tardigrad.recording.disk import Disk
from tardigrad.recording.epochs import Epochs
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.replica import Snapshot
from tardigrad.recording.shard_logs import log_name
from tardigrad.runtime.actor_pool import ActorPool
from tardigrad.runtime.computers import Computers
from tardigrad.runtime.late_files import wait_until_seen
from tardigrad.runtime.placement import ActorRooms
from tardigrad.runtime.ray_setup import ActorPlace, RaySetup
from tardigrad.runtime.shard_process import FinalShard, LifeEnded
from tardigrad.runtime.shard_shell import LiveShard, SentOrigin
from tardigrad.runtime.worker_shell import LiveWorker

START_S = 120.0
STOP_S = 30.0
ABANDON_S = 5.0
UNAVAILABLE_S = 0.5
"""Between tries to reach a process that cannot be reached for the moment."""


class Live(NamedTuple):
    """How the run stands, for whoever watches."""

    time_s: float
    shards: Sequence[LiveShard]
    workers: dict[int, LiveWorker]


@dataclass
class _Actor:
    handle: Any
    place: ActorPlace
    ended: Any
    """Resolves when its work is done, fails when its process dies or cannot go on. A shard's does
    a first time when its updates are made: the run may be over, and nobody waits for a poll."""


class OutOfReach(NamedTuple):
    """It cannot be reached for the moment; Ray does not know that it has died."""

    process: Process


class Driver:
    """One run's actors and what becomes of them."""

    def __init__(
        self,
        setup: RaySetup,
        coordinator: Coordinator,
        pool: ActorPool,
        disk: Disk,
        epochs: Epochs,
        rooms: ActorRooms,
        computers: Computers,
        on_snapshot: Callable[[list[Snapshot]], None] | None = None,
        watch: Callable[[Live], None] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.setup = setup
        self.coordinator = coordinator
        self.pool = pool
        self._disk, self._epochs = disk, epochs
        self._rooms, self._computers = rooms, computers
        self._on_snapshot, self._watch, self._say = on_snapshot, watch, say
        self._actors: dict[Process, _Actor] = {}
        self._bound_once: set[tuple[str, int]] = set()
        self._logs: dict[int, int] = {}
        """By shard, the epoch of its newest process that has begun its log."""
        self._told = ray.put(setup)

    def run(self) -> list[FinalShard]:
        """Until every shard has made its updates."""
        try:
            finals: list[FinalShard] = self._drive(self.coordinator.run())
            return finals
        except BaseException:
            with suppress(Exception):  # the reason for the end counts
                self.finish(ABANDON_S)
            raise

    def logs_begun(self) -> dict[int, int]:
        """By shard, the epoch of its newest process, once its log is seen from here."""
        names = [log_name(shard, epoch) for shard, epoch in self._logs.items()]
        wait_until_seen(self._disk, names, self._say)
        return self._logs

    def finish(self, limit_s: float = STOP_S) -> None:
        """Let the actors be used again, as far as they answer. What goes wrong in them now does not
        matter: every update has been made, or the run has ended anyway."""
        if not self._actors:
            return
        limit_s = min(limit_s, self.coordinator.patience.answer_s)
        closing = {actor.handle.close.remote(): actor for actor in self._actors.values()}
        done, late = ray.wait(list(closing), num_returns=len(closing), timeout=limit_s)
        for reference in done:
            try:
                ray.get(reference)
                self.pool.give_back(closing[reference].handle)
            except RayError:
                late.append(reference)
        for reference in late:
            self.pool.discard(closing[reference].handle)
        self._actors.clear()

    def _drive(self, steps: Any) -> Any:
        value: Any = None
        while True:
            try:
                effect = steps.send(value)
            except StopIteration as stop:
                return stop.value
            value = self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> Any:
        match effect:
            case Ask(calls, limit_s):
                return self._ask(calls, limit_s)
            case WaitForDeaths(seconds):
                return self._find_dead(seconds)
            case MakeShards(epochs, recovered, held):
                return self._make_shards(epochs, recovered, held)
            case MakeWorkers(workers, limit_s):
                return self._make_workers(workers, limit_s)
            case EndProcess(process):
                actor = self._actors.pop(process, None)
                if actor is not None:
                    self.pool.discard(actor.handle)
            case TakeEpoch(purpose):
                return self._epochs.take(purpose)
            case Recover():
                return self._recover()
            case NextCut():
                return next_cut(self._disk)
            case FinishCut(number, places, unsent, states):
                self._epochs.check()  # another driver may be making a cut of this number
                finish_cut(self._disk, number, places, unsent, states)
            case Tell(text):
                self._say(text)
            case Show():
                self._show(effect)
        return None

    def _recover(self) -> RecoveredRun:
        computers = self._computers
        recovered = RecoveredRun(
            self.setup.run, self._disk, self.logs_begun(), to_the_bit=computers.alike
        )
        self._epochs.check()  # after reading: no other driver's logs were among them
        if recovered.begun:
            computers.note("the driver", computer())
        if recovered.rounded:
            self._say("some numbers were computed again with another rounding than they had")
        return recovered

    # Actors.

    def _make_shards(
        self, epochs: Mapping[int, int], recovered: RecoveredRun, held: bool
    ) -> list[CallOutcome]:
        prepared = {}
        for shard, epoch in epochs.items():
            handle = self._take("shard", shard)
            origin = SentOrigin.of(recovered, shard, epoch)
            prepared[Process("shard", shard)] = (
                handle,
                handle.prepare.remote(self._told, origin, held),
            )
        outcomes = self._prepared(prepared, START_S)
        for (shard, epoch), outcome in zip(epochs.items(), outcomes, strict=True):
            if isinstance(outcome, Answer):
                self._logs[shard] = epoch
        return outcomes

    def _make_workers(self, workers: Sequence[int], limit_s: float) -> list[CallOutcome]:
        prepared = {}
        for worker in workers:
            handle = self._take("worker", worker)
            prepared[Process("worker", worker)] = (
                handle,
                handle.prepare.remote(self._told, worker),
            )
        return self._prepared(prepared, limit_s)

    def _take(self, kind: str, number: int) -> Any:
        """Where it was bound to, at first; then wherever there is room: its node may be gone."""
        again = (kind, number) in self._bound_once
        self._bound_once.add((kind, number))
        room = self._rooms.later(kind) if again else self._rooms.first(kind, number)
        return self.pool.take(kind, room)

    def _prepared(
        self, prepared: Mapping[Process, tuple[Any, Any]], limit_s: float
    ) -> list[CallOutcome]:
        until = time.monotonic() + limit_s
        outcomes: list[CallOutcome] = []
        unready = {process: handle for process, (handle, _) in prepared.items()}
        try:
            for process, (handle, reference) in prepared.items():
                outcome = self._outcome(process, reference, until)
                if isinstance(outcome, Answer):
                    told = {"until_done": True} if process.kind == "shard" else {}
                    ended = handle.watch.remote(**told)
                    self._actors[process] = _Actor(handle, outcome.value, ended)
                    self._computers.note(str(process), outcome.value.computer)
                    del unready[process]
                elif isinstance(outcome, OutOfReach):
                    outcome = Dead(process, "it cannot be reached")
                outcomes.append(outcome)
        finally:
            for handle in unready.values():
                self.pool.discard(handle)
        return outcomes

    def _ask(self, calls: Sequence[tuple[Process, Any]], limit_s: float) -> list[CallOutcome]:
        until = time.monotonic() + limit_s
        asked = [self._call(process, call) for process, call in calls]
        outcomes: list[CallOutcome] = []
        for (process, call), reference in zip(calls, asked, strict=True):
            if reference is None:
                outcomes.append(Dead(process, "it was not there"))
                continue
            outcome = self._outcome(process, reference, until)
            while isinstance(outcome, OutOfReach):  # a link may be down for the moment
                time.sleep(UNAVAILABLE_S)
                outcome = self._outcome(process, self._call(process, call), until)
            outcomes.append(outcome)
        return outcomes

    def _call(self, process: Process, call: Any) -> Any:
        actor = self._actors.get(process)
        if actor is None:
            return None
        if process.kind == "shard":
            return actor.handle.call.remote(call)
        shards = {p.number: a.place for p, a in self._actors.items() if p.kind == "shard"}
        return actor.handle.call.remote(call, shards)

    def _outcome(self, process: Process, reference: Any, until: float) -> CallOutcome | OutOfReach:
        left_s = max(0.0, until - time.monotonic())
        ready, _ = ray.wait([reference], timeout=left_s)
        if not ready:
            return Dead(process, "it does not answer")
        return self.settled(process, reference)

    @staticmethod
    def settled(process: Process, reference: Any) -> CallOutcome | OutOfReach:
        """An error that is not of this one process ends the run."""
        try:
            return Answer(ray.get(reference))
        except RayTaskError as error:
            if isinstance(error.cause, LifeEnded):
                return Dead(process, str(error.cause))
            raise error.cause from error
        except ActorUnavailableError:
            return OutOfReach(process)
        except RayError as error:  # it has died, or its node has, with what it answered
            return Dead(process, _why(error))

    def _find_dead(self, seconds: float) -> list[Dead]:
        ended = {actor.ended: process for process, actor in self._actors.items()}
        if not ended:
            time.sleep(seconds)
            return []
        waiting = list(ended)
        ready, _ = ray.wait(waiting, num_returns=1, timeout=seconds)
        if ready:  # others may have gone with it
            ready, _ = ray.wait(waiting, num_returns=len(waiting), timeout=0)
        dead = []
        for reference in ready:
            process = ended[reference]
            outcome = self.settled(process, reference)
            if isinstance(outcome, Dead):
                dead.append(outcome)
                continue
            actor = self._actors[process]
            actor.ended = actor.handle.watch.remote()
            if isinstance(outcome, OutOfReach):  # whoever asks it something finds out more
                time.sleep(UNAVAILABLE_S)
        return dead

    # Watching.

    def _show(self, show: Show) -> None:
        if self._on_snapshot is not None:
            for parts in show.snapshots:
                self._on_snapshot(list(parts))
        if self._watch is not None:
            now_s = time.time() - self.setup.began_s
            self._watch(Live(now_s, show.shards, dict(show.workers)))


def _why(error: RayError) -> str:
    """Ray's reason in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:200] if lines else type(error).__name__
