"""The driver: starts a run's actors, watches them, brings back the dead, and ends the run.

It takes no part in training. What it knows it can learn again from the run's folder, so a killed
driver is replaced by another one.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import ray
import torch
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from torch import Tensor

from tardigrad.runtime.crew import Crew
from tardigrad.runtime.cut import begin_cut, cuts, finish_cut
from tardigrad.runtime.membership import Change, still_to_make
from tardigrad.runtime.messages import NO_ROW, PushHeader
from tardigrad.runtime.recovery import Recovered
from tardigrad.runtime.server import Snapshot
from tardigrad.runtime.setup import Place, Setup
from tardigrad.runtime.standing import End, ShardStatus, Where, WorkerAddress

POLL_S = 0.25
QUIET_S = 60.0
"""How long a cut may wait for silence before it is given up."""
START_S = 120.0
REPLACE_S = 60.0
"""How long a dead worker's replacement may take to start before the run goes on without."""
STOP_S = 30.0


class Live(NamedTuple):
    """How the run stands, for whoever watches."""

    time_s: float
    shards: Sequence[ShardStatus]
    workers: dict[int, Where]


@dataclass
class _Actor:
    handle: Any
    incarnation: int
    place: Place
    ended: Any
    """Resolves when its work is done, fails when its process dies."""


class Ended(NamedTuple):
    theta: Tensor
    average: Tensor | None
    buffers: tuple[Tensor, ...]
    digests: list[str]


class Driver:
    """One run's actors and what becomes of them."""

    def __init__(
        self,
        setup: Setup,
        crew: Crew,
        cut_every: int = 0,
        changes: Sequence[Change] = (),
        on_snapshot: Callable[[list[Snapshot]], None] | None = None,
        watch: Callable[[Live], None] | None = None,
        resources: Mapping[tuple[str, int], Mapping[str, float]] | None = None,
    ) -> None:
        self.setup = setup
        self.crew = crew
        self.cut_every = cut_every
        self.changes = sorted(changes, key=lambda c: c.at_update)
        self.on_snapshot = on_snapshot
        self.watch = watch
        self.resources = resources or {}
        self.shards: list[_Actor] = []
        self.workers: dict[int, _Actor] = {}
        self.recoveries: list[str] = []
        self._dead: set[tuple[str, int]] = set()
        self._done: set[tuple[str, int]] = set()
        self._holding = False
        self._next_worker = setup.workers
        self._next_cut = cut_every
        self._snapshots: dict[int, dict[int, Snapshot]] = {}
        self._evaluated = -1
        self._told = ray.put(setup)

    # Beginning.

    def start(self, recovered: Recovered | None = None) -> None:
        """Start all actors: from nothing, or where the logs of an earlier driver end."""
        count, members = self.setup.sharding.shards, list(range(self.setup.workers))
        lives, saved = [0] * count, [None] * count
        worker_lives = dict.fromkeys(members, 0)
        if recovered is not None:
            control = recovered.servers[0].control
            members = sorted(control.members)
            worker_lives = {w: control.incarnation.get(w, 0) + 1 for w in members}
            self._next_worker = max([*control.incarnation, self.setup.workers - 1]) + 1
            self.changes = still_to_make(self.changes, recovered.stories[0])
            lives = [story.incarnation + 1 for story in recovered.stories]
            saved = [_saved(recovered, shard) for shard in range(count)]
        shards = [self._take("shard", s) for s in range(count)]
        workers = [self._take("worker", w) for w in members]
        places = [
            actor.prepare.remote(self._told, s, lives[s], saved[s])
            for s, actor in enumerate(shards)
        ] + [
            actor.prepare.remote(self._told, w, worker_lives[w])
            for w, actor in zip(members, workers, strict=True)
        ]
        where = ray.get(places, timeout=START_S)
        for s, actor in enumerate(shards):
            ended = actor.watch.remote(self.setup.updates)
            self.shards.append(_Actor(actor, lives[s], where[s], ended))
        for w, actor, place in zip(members, workers, where[count:], strict=True):
            self.workers[w] = _Actor(actor, worker_lives[w], place, None)
        ray.get([self._introduce(worker) for worker in workers])
        channels = {w: self._connect(w) for w in members}
        for w in members:  # only now: what one does may release the others
            self._set_to_work(w, channels[w], recovered)

    def _take(self, kind: str, index: int) -> Any:
        return self.crew.take(kind, self.resources.get((kind, index)))

    def _introduce(self, worker: Any) -> Any:
        """Tell a worker of the shards, before they are told of it."""
        shards = [(s.handle, s.incarnation, s.place) for s in self.shards]
        return worker.connect.remote(shards)

    def _connect(self, worker: int) -> list[End]:
        """Tell the shards of a worker."""
        actor = self.workers[worker]
        link = WorkerAddress(actor.handle, actor.incarnation, actor.place)
        channels: list[End] = ray.get([s.handle.connect.remote(worker, link) for s in self.shards])
        return channels

    def _set_to_work(
        self, worker: int, channels: list[End], recovered: Recovered | None = None
    ) -> None:
        """Start a worker where its channels say: at the beginning, or in a dead one's place."""
        actor = self.workers[worker]
        if len({channel.received for channel in channels}) > 1:
            channels = self._complete(worker, recovered or Recovered(self.setup))
        received = channels[0].received
        if received < 0 and worker < self.setup.workers:
            actor.ended = actor.handle.run.remote(0, worker, [0] * len(channels))
        else:
            heard, last = [channel.heard for channel in channels], channels[0].last
            used = NO_ROW if last is None else PushHeader(*last).row
            actor.ended = actor.handle.run.remote(received + 1, NO_ROW, heard, used)
        if actor.incarnation:
            ray.get([s.handle.resend.remote(worker) for s in self.shards])

    def _complete(self, worker: int, recovered: Recovered) -> list[End]:
        """Give every shard the gradients that only some have got of a worker that died."""
        for half in recovered.halves(worker):
            for shard in half.missing:
                grad: Any = None
                extra: tuple[Any, ...] = ()
                if half.gradient is not None:
                    grad = half.gradient.grad[self.setup.sharding.slice(shard)].numpy()
                    extra = tuple(b.numpy() for b in half.gradient.buffers) if not shard else ()
                ray.get(self.shards[shard].handle.complete.remote(tuple(half.push), grad, extra))
        return [ray.get(s.handle.channels.remote())[worker] for s in self.shards]

    # Going on.

    def run(self) -> Ended:
        """Until every shard has made its updates."""
        while True:
            try:
                if self._tick():
                    return self._finish()
            except RayActorError:
                time.sleep(POLL_S / 10)  # somebody died meanwhile: the next tick finds out who
                self._doubt_finished()

    def _tick(self) -> bool:
        """Wait a little, mend what broke, do what is due; True at the end."""
        self._find_dead()
        if self._dead:
            self._mend()
            return False
        status = ray.get([s.handle.status.remote() for s in self.shards])
        self._look(status)
        updates = min(s.version for s in status)
        if updates >= self.setup.updates:
            return True
        if self.changes and updates >= self.changes[0].at_update:
            change = self.changes[0]
            if change.remove is None:
                self.add_worker()
            elif change.remove in self.workers:  # else it has died, and was not replaced
                self.remove_worker(change.remove)
            self.changes.pop(0)  # only now: a death on the way would have it done again
        overdue = updates >= self._next_cut + self.cut_every
        if self.cut_every and updates >= self._next_cut and self.cut(overdue):
            self._next_cut = (updates // self.cut_every + 1) * self.cut_every
        return False

    def _find_dead(self) -> None:
        actors = [(("shard", i), a) for i, a in enumerate(self.shards)]
        actors += [(("worker", w), a) for w, a in self.workers.items()]
        known = self._dead | self._done
        pending = {a.ended: who for who, a in actors if who not in known}
        unfinished = list(pending)
        ready, _ = ray.wait(unfinished, num_returns=1, timeout=POLL_S)
        if ready:  # others may have gone with it
            ready, _ = ray.wait(unfinished, num_returns=len(unfinished), timeout=0)
        for reference in ready:
            try:
                ray.get(reference)
                self._done.add(pending[reference])
            except RayActorError:
                self._dead.add(pending[reference])
            except RayTaskError as error:
                self.abandon()
                raise error.cause from error

    def _doubt_finished(self) -> None:
        """Shards that have made their last version are not waited for any more, and yet may die."""
        for index, shard in enumerate(self.shards):
            if ("shard", index) in self._done:
                try:
                    ray.get(shard.handle.status.remote())
                except RayActorError:
                    self._done.discard(("shard", index))
                    self._dead.add(("shard", index))

    def _mend(self) -> None:
        """Bring back the dead, shards first, because workers need all of them."""
        self._revive_shards()
        for who in sorted(self._dead):
            _, index = who
            ray.kill(self.workers[index].handle)  # it may only have been out of reach
            self._replace(index, self.workers[index].incarnation + 1)
            self._dead.discard(who)
            self.recoveries.append(f"worker {index}")

    def _revive_shards(self) -> None:
        for who in sorted(who for who in self._dead if who[0] == "shard"):
            _, index = who
            ray.kill(self.shards[index].handle)
            self._revive(index, self.shards[index].incarnation + 1)
            self._dead.discard(who)
            self.recoveries.append(f"shard {index}")

    def _revive(self, shard: int, incarnation: int) -> None:
        recovered = Recovered(self.setup)
        handle = self.crew.take("shard")  # wherever there is room: its old node may be gone
        saved = _saved(recovered, shard)
        prepared = handle.prepare.remote(self._told, shard, incarnation, saved)
        place = ray.get(prepared, timeout=START_S)
        self.shards[shard] = _Actor(
            handle, incarnation, place, handle.watch.remote(self.setup.updates)
        )
        self._done.discard(("shard", shard))
        if self._holding:
            ray.get(handle.hold.remote())
        known = ray.get(handle.channels.remote())
        for worker, actor in self.workers.items():
            received = -1
            if worker in known:  # else it is just joining or leaving
                link = WorkerAddress(actor.handle, actor.incarnation, actor.place)
                received = ray.get(handle.connect.remote(worker, link)).received
            again = actor.handle.reconnect.remote(shard, handle, incarnation, place, received)
            try:
                ray.get(again)
            except RayActorError:
                continue  # it is dead too, and will be replaced
            ray.get(handle.resend.remote(worker))

    def _replace(self, worker: int, incarnation: int) -> None:
        handle = self.crew.take("worker")
        try:
            prepared = handle.prepare.remote(self._told, worker, incarnation)
            place = ray.get(prepared, timeout=REPLACE_S)
        except GetTimeoutError:
            ray.kill(handle)
            self._give_up(worker)
            return
        self.workers[worker] = _Actor(handle, incarnation, place, None)
        ray.get(self._introduce(handle))
        self._set_to_work(worker, self._connect(worker))

    def _give_up(self, worker: int) -> None:
        """There is no room for a replacement: the worker has left, and what it had pushed to some
        shards only is dropped at the others, and counted."""
        if len(self.workers) == 1:
            raise ValueError(
                f"worker {worker}, the last one, died and no node has room for another: "
                "add nodes and resume the run"
            )
        lost: list[list[tuple[Any, ...]]] = [[] for _ in self.shards]
        for half in Recovered(self.setup).halves(worker):
            for shard in half.missing:
                lost[shard].append(tuple(half.push))
        self._all_at_once(lambda s: self.shards[s].handle.leave.remote(worker, lost[s]))
        del self.workers[worker]
        self._dead.discard(("worker", worker))

    # Holding everything for a moment.

    def cut(self, overdue: bool = False) -> bool:
        """Hold releases until nothing is in flight, save all shards, go on.

        False, and nothing saved, where some shards only have made a version to evaluate: who starts
        from the cut would not see the others make it. One that is overdue is made all the same,
        because shards that are always apart would never let one be made.
        """
        handles = [s.handle for s in self.shards]
        try:
            ray.get([h.hold.remote() for h in handles])
            if self._quiet():
                self._evaluate()
                if self._snapshots and not overdue:
                    return False
                whole = cuts(self.setup.folder)
                number = whole[-1].number + 1 if whole else 0
                begin_cut(self.setup.folder, number)
                events = ray.get([h.save.remote(number) for h in handles])
                finish_cut(self.setup.folder, number, events)
            return True
        finally:
            for handle in handles:
                handle.resume.remote()

    def _quiet(self) -> bool:
        """Wait until every worker waits and every message has arrived."""
        until = time.monotonic() + QUIET_S
        while time.monotonic() < until:
            wheres = dict(
                zip(
                    self.workers,
                    ray.get([a.handle.where.remote() for a in self.workers.values()]),
                    strict=True,
                )
            )
            ends = ray.get([s.handle.channels.remote() for s in self.shards])
            if all(_silent(where, [end[w] for end in ends]) for w, where in wheres.items()):
                return True
            time.sleep(0.005)
        return False

    def add_worker(self) -> int:
        """One more worker, with a number of its own."""
        worker = self._next_worker
        handle = self._take("worker", worker)
        place = ray.get(handle.prepare.remote(self._told, worker, 0), timeout=START_S)
        ray.get(self._introduce(handle))
        ended = handle.run.remote(0, NO_ROW, [-1] * len(self.shards))
        self.workers[worker] = _Actor(handle, 0, place, ended)
        self._next_worker += 1
        link = WorkerAddress(handle, 0, place)
        self._all_at_once(lambda s: self.shards[s].handle.join.remote(worker, link))
        return worker

    def remove_worker(self, worker: int) -> None:
        """Let a worker finish and push its gradient, then go for good."""
        actor = self.workers.get(worker)
        if actor is None:
            raise ValueError(f"there is no worker {worker}: {sorted(self.workers)} are at work")
        if len(self.workers) == 1:
            raise ValueError(f"worker {worker} is the last one: nobody would be left to train")
        try:
            ray.get(actor.handle.stop.remote())
            ray.get(actor.ended)
            pushed = ray.get(actor.handle.where.remote()).pushed
        except RayActorError:
            ray.kill(actor.handle)  # it may only have been out of reach
            self._give_up(worker)  # it died on its way out
            return
        while any(
            ray.get(s.handle.channels.remote())[worker].received < pushed for s in self.shards
        ):
            time.sleep(0.005)
        self._all_at_once(lambda s: self.shards[s].handle.leave.remote(worker))
        del self.workers[worker]
        self.crew.give_back(actor.handle)

    def _all_at_once(self, tell: Callable[[int], Any]) -> None:
        """The same event at every shard, with no release in between: nobody sees it half done. A
        shard that dies meanwhile is brought back, and all are told again what they may know."""
        self._holding = True
        while self._holding:
            try:
                self._revive_shards()
                self._of_all(lambda s: self.shards[s].handle.hold.remote())
                self._of_all(tell)
                self._holding = False
            except RayActorError:
                self._find_dead()
                self._doubt_finished()
        for shard in self.shards:
            shard.handle.resume.remote()

    def _of_all(self, tell: Callable[[int], Any]) -> None:
        """Wait for every shard, also where one fails."""
        told = [tell(shard) for shard in range(len(self.shards))]
        ray.wait(told, num_returns=len(told))
        ray.get(told)

    # Watching and ending.

    def _look(self, status: list[ShardStatus]) -> None:
        self._evaluate()
        if self.watch is not None:
            wheres = ray.get([a.handle.where.remote() for a in self.workers.values()])
            now_s = time.time() - self.setup.began_s
            self.watch(Live(now_s, status, dict(zip(self.workers, wheres, strict=True))))

    def _evaluate(self) -> None:
        """Hand over the snapshots that all shards have made; a revived one makes some again."""
        if self.on_snapshot is None:
            return
        for s, actor in enumerate(self.shards):
            for snapshot in ray.get(actor.handle.snapshots.remote()):
                if snapshot.version > self._evaluated:
                    self._snapshots.setdefault(snapshot.version, {})[s] = snapshot
        for version in sorted(self._snapshots):
            parts = self._snapshots[version]
            if len(parts) == len(self.shards):
                del self._snapshots[version]
                self._evaluated = version
                self.on_snapshot([parts[s] for s in range(len(parts))])

    def _finish(self) -> Ended:
        ray.get([a.handle.stop.remote() for a in self.workers.values()])
        running = {a.ended: w for w, a in self.workers.items()}
        done, _ = ray.wait(list(running), num_returns=len(running), timeout=STOP_S)
        finals = ray.get([s.handle.final.remote() for s in self.shards])
        for reference, worker in running.items():
            actor = self.workers[worker]
            if reference in done:
                self.crew.give_back(actor.handle)
            else:
                ray.kill(actor.handle)
        for actor in self.shards:
            self.crew.give_back(actor.handle)
        averages = [f[1] for f in finals]
        kept = [a for a in averages if a is not None]
        average = torch.cat(kept) if len(kept) == len(finals) else None
        theta = torch.cat([f[0] for f in finals])
        return Ended(theta, average, finals[0][2], [f[3] for f in finals])

    def abandon(self) -> None:
        """End every process of the run, whatever it is doing."""
        for actor in [*self.shards, *self.workers.values()]:
            ray.kill(actor.handle)


def _saved(recovered: Recovered, shard: int) -> Any:
    if not recovered.reached_end(shard):
        raise ValueError(
            f"shard {shard} cannot be recovered: its log goes on after what the other logs explain"
        )
    server = recovered.servers[shard]
    return server.tensors(), server.facts(), list(server.snapshots)


def _silent(where: Where, ends: Sequence[End]) -> bool:
    return where.idle and all(
        end.received == where.pushed and end.sent == heard
        for end, heard in zip(ends, where.heard, strict=True)
    )
