"""Recovery: load the newest cut and live through all shards' logs from there.

A gradient's view is a composite of all shards, so one shard's log alone is not enough: every shard
is executed again, one gradient at a time, with the same `ShardReplica` that its process uses.
Gradients are computed, not stored; the same view and turn give the same bits. Digests in the logs
are compared on the way.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tardigrad.engine.checkpoint import checkpoint_from_bytes
from tardigrad.protocol.log import LogEntry
from tardigrad.protocol.messages import Completed, Event, Joined, Left, PushHeader, Replaced
from tardigrad.protocol.new_shards import LoggedShard
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.recording.cuts import FoundCut, newest_cut, read_part, read_unsent
from tardigrad.recording.disk import Disk
from tardigrad.recording.gradients import RowPart, WholeGradient
from tardigrad.recording.kept_states import KeptStates, workers_in
from tardigrad.recording.merge import LogMerger, explained, pushed
from tardigrad.recording.replica import ShardReplica, check_same_decisions
from tardigrad.recording.setup import RunSetup
from tardigrad.recording.shard_logs import ShardStory, read_story


class HalfPushed(NamedTuple):
    """A gradient that came to some shards only, computed again for the others."""

    push: PushHeader
    gradient: WholeGradient | None
    """None where it was not finite or was interrupted, so that only its header travels."""
    missing: tuple[int, ...]


class RecoveredRun:
    """All shards as far as their logs tell.

    Logs that were not synced may have lost their ends with a machine, and then another's goes on
    after what they explain. `lost` counts such entries: they are not part of the run any more.
    """

    def __init__(
        self,
        setup: RunSetup,
        disk: Disk,
        known: Mapping[int, int] | None = None,
        to_the_bit: bool = True,
    ) -> None:
        """known: by shard, a process whose log is known to have begun. to_the_bit: whether what the
        run computed comes out the same here; else what does not is counted in `rounded`."""
        self.setup = setup
        self._to_the_bit, self.rounded = to_the_bit, 0
        shards, known = range(setup.shards), known or {}
        self.stories: list[ShardStory] = [read_story(disk, s, known.get(s, 0)) for s in shards]
        self.begun = any(story.chapters for story in self.stories)
        self.added: list[list[LogEntry]] = [[] for _ in shards]
        """Joins and leaves that stand in some logs only, for the others' next processes to log."""
        written = [len(story.entries) for story in self.stories]
        self._complete_membership()
        self.replicas = [ShardReplica(setup, shard) for shard in shards]
        found = newest_cut(disk, self.stories, lambda cut: self._has_states(disk, cut))
        positions = [0] * setup.shards if found is None else found.positions
        for shard, replica in enumerate(self.replicas):
            replica.refeed(self.stories[shard].entries[: positions[shard]])
            if found is not None:
                name = found.names[shard]
                replica.restore(*checkpoint_from_bytes(read_part(disk, name), name))
        self._digests = [
            {digest.version: digest.digest for digest in story.digests} for story in self.stories
        ]
        self._came: dict[int, tuple[PushHeader, set[int]]] = {}
        """Headers that some shards have and others have not, and the shards that have them."""
        self._gradients: dict[int, WholeGradient] = {}
        """Of those, and of rows that wait to be merged into a later push."""
        if found is not None and found.unsent is not None:
            self._gradients.update(read_unsent(disk, found.unsent))
        self._states = KeptStates(setup)
        if found is not None and found.states is not None:
            self._states.restore(read_part(disk, found.states), found.states)
        logs = [s.entries[p:] for s, p in zip(self.stories, positions, strict=True)]
        versions = [replica.shard.version for replica in self.replicas]
        pull_half = setup.policy.pull_half(setup.shards)
        # What was added for a process that nobody has heard of counts as what is added now.
        told = [
            w if s.behind is None else s.behind for w, s in zip(written, self.stories, strict=True)
        ]
        self._told = [max(0, t - p) for t, p in zip(told, positions, strict=True)]
        until = explained(logs, self.sessions, pull_half.same_version, self._told)
        logs = [log[:end] for log, end in zip(logs, until, strict=True)]
        self._logged: dict[int, LoggedShard] = {}
        self._merger = LogMerger(logs, versions, rows=sys.maxsize)
        threads = torch.get_num_threads()
        torch.set_num_threads(setup.threads)
        try:
            while turn := self._merger.next():
                for shard in turn:
                    self._relive(shard)
        finally:
            torch.set_num_threads(threads)
        self.logged = [
            self._logged.get(shard) or LoggedShard.of(session)
            for shard, session in enumerate(self.sessions)
        ]
        reached = [p + end for p, end in zip(positions, until, strict=True)]
        self.lost = []
        for shard, story in enumerate(self.stories):
            self.lost.append(len(story.entries) - reached[shard])
            self.added[shard] = self.added[shard][: max(0, reached[shard] - written[shard])]
            story.keep(min(reached[shard], written[shard]))

    def _has_states(self, disk: Disk, cut: FoundCut) -> bool:
        """Whether a cut has all states that workers went on with.

        It has none of a worker whose new process had pushed nothing yet. If it is the work of a
        driver that had been deposed already, the next driver had read the logs without it, and let
        that worker go on with what the one before had.
        """
        if not self.setup.keeps_state:
            return True
        known = set() if cut.states is None else workers_in(read_part(disk, cut.states), cut.states)
        first: dict[int, PushHeader] = {}
        for story, position in zip(self.stories, cut.positions, strict=True):
            for push in filter(None, map(pushed, story.entries[position:])):
                before = first.setdefault(push.worker, push)
                first[push.worker] = min(before, push, key=lambda one: one.step)
        return all(push.fresh or worker in known for worker, push in first.items())

    @property
    def sessions(self) -> list[ShardSession]:
        return [replica.session for replica in self.replicas]

    def changes_made(self) -> tuple[int, set[int]]:
        """How many workers have joined, and who has left."""
        events = [entry.event for entry in [*self.stories[0].entries, *self.added[0]]]
        joined = sum(isinstance(event, Joined) for event in events)
        return joined, {event.worker for event in events if isinstance(event, Left)}

    def halves(self, worker: int) -> list[HalfPushed]:
        """This worker's gradients that some shards have and others have not."""
        everyone = set(range(len(self.replicas)))
        found = [
            HalfPushed(push, self._gradients.get(push.row), tuple(sorted(everyone - have)))
            for push, have in self._came.values()
            if push.worker == worker
        ]
        return sorted(found, key=lambda half: half.push.step)

    def kept(self, worker: int) -> Any | None:
        """What its work keeps for itself, after the last gradient in any log; None: nothing."""
        return self._states.of(worker)

    def part(self, half: HalfPushed, shard: int) -> RowPart | None:
        """A shard's slice of a gradient that it has not; asked once, in the order of steps."""
        if half.gradient is None:
            return None
        return self._states.part(half.push, shard, [half.gradient])

    def _complete_membership(self) -> None:
        """Let every join and leave that one log has stand in all.

        Releases are held until every shard has been told, so where one stands in some logs only,
        nothing in the others follows from it: at their ends, it is as if all had been told in time.
        """
        every = max((_membership(story.entries) for story in self.stories), key=len)
        pushes = _headers([entry for story in self.stories for entry in story.entries])
        for shard, story in enumerate(self.stories):
            missing = every[len(_membership(story.entries)) :]
            if not missing:
                continue
            session = ShardReplica(self.setup, shard).session
            for entry in story.entries:
                session.handle(entry.event, entry.now_s)
            here = _headers(story.entries)
            now_s = max((entry.now_s for entry in story.entries), default=0.0)
            for event in missing:
                events: list[Event] = [event]
                if isinstance(event, Left):  # first what it had pushed to other shards
                    theirs = [p for row, p in pushes.items() if row not in here]
                    halves = [_alone(p) for p in theirs if p.worker == event.worker]
                    halves.sort(key=lambda half: half.step)
                    if halves:  # as of any worker that is gone: a gate goes by it
                        life = session.lives[event.worker] + 1
                        events = [Replaced(event.worker, life), *map(Completed, halves), event]
                for one in events:
                    self.added[shard].append(LogEntry(one, now_s, session.handle(one, now_s)))
            story.entries += self.added[shard]

    def _relive(self, shard: int) -> None:
        replica, entry = self.replicas[shard], self._merger.entry(shard)
        if self._merger.position[shard] == self._told[shard]:  # what follows was added
            self._logged[shard] = LoggedShard.of(replica.session)
        push = pushed(entry)
        if push is not None:
            self._arrive(shard, push)
        elif isinstance(entry.event, Left):
            self._states.forget(entry.event.worker)
        decided = replica.decide(entry.event, entry.now_s)
        check_same_decisions(shard, entry, decided.entry.decided)
        self._complete(shard, entry, replica.carry_out(decided))
        replica.consumed.clear()
        self._forget_gradients()
        self._merger.advance(shard)
        expected = self._digests[shard].get(replica.shard.version)
        if expected is not None and expected != replica.digest():
            self._differs(
                f"shard {shard}, version {replica.shard.version}: executed again it has the digest "
                f"{replica.digest()}, the log says {expected}"
            )

    def _differs(self, how: str) -> None:
        self.rounded += 1
        if self._to_the_bit:
            raise ValueError(
                f"{how}. Recovery needs the kind of machine and the versions that the run began "
                "with"
            )

    def _complete(self, shard: int, entry: LogEntry, again: LogEntry) -> None:
        """With the deviations, of an entry that was added here without numbers."""
        if entry.deviations and entry.deviations != again.deviations:
            self._differs(
                f"shard {shard}'s log, {entry.event}: executed again its deviations are "
                f"{again.deviations}, the log says {entry.deviations}"
            )
        for at, added in enumerate(self.added[shard]):
            if added is entry:
                self.added[shard][at] = again

    def _arrive(self, shard: int, push: PushHeader) -> None:
        _, have = self._came.setdefault(push.row, (_alone(push), set()))
        if push.finite and not push.interrupted and not have:
            self._gradients[push.row] = self._gradient(push)
        part = None
        if push.finite and not push.interrupted:
            gradients = [self._gradients[row] for row in (*push.merged, push.row)]
            part = self._states.part(push, shard, gradients)
        self.replicas[shard].arrive(push, *(part or (None, ())))
        have.add(shard)
        if len(have) == len(self.replicas):
            del self._came[push.row]

    def _forget_gradients(self) -> None:
        gates = [session.gate for session in self.sessions]
        needed = self._came.keys() | {row for gate in gates if gate for row in gate.unsent()}
        for row in self._gradients.keys() - needed:
            del self._gradients[row]

    def _gradient(self, push: PushHeader) -> WholeGradient:
        """At the composite of what was sent; no shard has the push yet, so all still hold it."""
        parts: Sequence[Tensor] = [
            replica.sent[version] for replica, version in zip(self.replicas, push.read, strict=True)
        ]
        view = parts[0].clone() if len(parts) == 1 else torch.cat(list(parts))
        return self._states.compute(push, view)


def _alone(push: PushHeader) -> PushHeader:
    """As it is computed again for a shard that it did not come to."""
    return push._replace(crosses=True, merged=(), deviations=())


def _membership(entries: Sequence[LogEntry]) -> list[Joined | Left]:
    return [entry.event for entry in entries if isinstance(entry.event, Joined | Left)]


def _headers(entries: Sequence[LogEntry]) -> dict[int, PushHeader]:
    """By row, of gradients that came."""
    return {push.row: push for push in map(pushed, entries) if push is not None}
