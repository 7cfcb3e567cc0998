"""From the shards' logs to one Schedule.

Each log is in order; between them only causes count: a gradient comes after every version that it
had read. Among what may come next, the earliest by the shards' clocks does, so that the order is
the one that happened wherever clocks agree. Joins and leaves stand in every log; they come when all
logs have reached them (releases are held around them, so none has to wait for a consequence of
itself).

A gradient's row must have been given by shard 0, but may come before that in this order: rows are
given around joins and leaves too, to workers that wait for nothing.
"""

import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tardigrad.protocol.log import LogEntry
from tardigrad.protocol.messages import (
    MEMBERSHIP,
    Applied,
    Came,
    Completed,
    Dropped,
    Joined,
    PushHeader,
    Released,
    RowGiven,
)
from tardigrad.protocol.shard_session import ShardSession
from tardigrad.recording.shard_logs import ShardStory
from tardigrad.scheduling import Recorder, Schedule


class Merged(NamedTuple):
    schedule: Schedule
    losses: list[float]
    """The mean batch loss of each update of shard 0."""
    origin_s: float
    """The schedule's time 0, the start of the first gradient, on the run's own clock."""


class LogMerger:
    """Steps through the logs in an order in which they could have happened."""

    def __init__(
        self,
        logs: Sequence[Sequence[LogEntry]],
        versions: Sequence[int],
        rows: int,
        released: Sequence[Collection[tuple[int, int]]] | None = None,
        given: Mapping[int, tuple[int, int]] | None = None,
        same_version: bool = False,
        written: Sequence[int] | None = None,
    ) -> None:
        """released: what of each shard, (worker, version), workers may compute at before these
        entries; None: whatever they say that they read was released. given: later rows than the
        first `rows`, and for whose step each was given. same_version: see `PullHalf`. written: how
        many of each log's entries anybody can have seen the consequences of; None: all."""
        self.logs = logs
        self.position = [0] * len(logs)
        self.versions = list(versions)
        self.rows = rows
        """How many were given, whoever says that one is his."""
        self._given = given or {}
        self._same_version = same_version
        self._written = [len(log) for log in logs] if written is None else written
        self._released = None if released is None else [set(before) for before in released]

    def next(self) -> list[int]:
        """The shards whose next entry comes now: one, or all for a join or a leave; [] at the end.

        The caller handles the entries and then calls `advance` for each shard.
        """
        ready: list[tuple[float, int]] = []
        waiting = 0
        for shard, entries in enumerate(self.logs):
            at = self.position[shard]
            if at == len(entries):
                continue
            entry = entries[at]
            if isinstance(entry.event, MEMBERSHIP):
                waiting += 1
            elif self._caused(entry):
                ready.append((entry.now_s, shard))
        if ready:
            return [min(ready)[1]]
        return list(range(len(self.logs))) if waiting == len(self.logs) else []

    def entry(self, shard: int) -> LogEntry:
        return self.logs[shard][self.position[shard]]

    def advance(self, shard: int) -> None:
        decided = self.entry(shard).decided
        if self.position[shard] < self._written[shard]:
            self.versions[shard] += sum(isinstance(d, Applied) for d in decided)
            if self._released is not None:
                releases = [d for d in decided if isinstance(d, Released)]
                self._released[shard] |= computed_at(releases)
        self.position[shard] += 1

    @property
    def finished(self) -> bool:
        return all(p == len(logs) for p, logs in zip(self.position, self.logs, strict=True))

    def _caused(self, entry: LogEntry) -> bool:
        push = pushed(entry)
        if push is None:
            return True
        if push.row >= self.rows and self._given.get(push.row) != (push.worker, push.step):
            return False
        if any(map(operator.gt, push.read, self.versions)):
            return False
        # A link may have held a version's numbers back, and its worker have waited for it.
        if self._same_version and push.stamp > min(self.versions):
            return False
        return self._released is None or all(
            (push.worker, version) in here
            for version, here in zip(push.read, self._released, strict=True)
        )


def computed_at(releases: Iterable[Released]) -> set[tuple[int, int]]:
    """(worker, version) of what a worker may compute at: a link may have held the numbers back."""
    return {(one.worker, one.version) for one in releases if one.carries}


def explained(
    logs: Sequence[Sequence[LogEntry]],
    sessions: Sequence[ShardSession],
    same_version: bool = False,
    written: Sequence[int] | None = None,
) -> list[int]:
    """How many entries of each log the others explain; before them, shards were like `sessions`.

    A gradient is explained by the releases of what it was computed at. That the versions are there
    is not enough: a shard that lost the release with its log's end does not keep them for it.
    written: how many of each log's entries stand there; the others were added to what is left of
    it, and explain nothing. Their versions have the numbers of lost ones, and are not the same.
    """
    versions = [session.version for session in sessions]
    released = [
        computed_at(kept for channel in session.channels.values() for kept in channel.kept)
        for session in sessions
    ]
    stop = [len(log) for log in logs]
    while True:
        known = [log[:end] for log, end in zip(logs, stop, strict=True)]
        # By whose they are: where shard 0 lost a log's end, it may have given a row anew.
        seen = known[0] if written is None else known[0][: written[0]]
        given = {one.row: (one.worker, one.step) for one in _rows_given(seen)}
        rows = sessions[0].rows_given
        merger = LogMerger(known, versions, rows, released, given, same_version, written)
        while turn := merger.next():
            for shard in turn:
                merger.advance(shard)
        if merger.finished:
            return stop
        stop = merger.position  # rows that are given behind this are not given either


def _rows_given(entries: Sequence[LogEntry]) -> list[RowGiven]:
    return [d for entry in entries for d in entry.decided if isinstance(d, RowGiven)]


def pushed(entry: LogEntry) -> PushHeader | None:
    """The header of the gradient that came, if one did."""
    match entry.event:
        case Came(message) if isinstance(message.body, PushHeader):
            return message.body
        case Completed(header):
            return header
    return None


def merge(
    stories: Sequence[ShardStory], workers: int, gated: bool = False, batches: int = 1
) -> Merged:
    """The schedule that happened, and the losses on the way; `workers` were there at first.

    gated: a link decided on what crosses, and its decisions are told. batches: of a row that was
    dealt none of its own.
    """
    joins = sum(isinstance(entry.event, Joined) for entry in stories[0].entries)
    recorder = Recorder(workers + joins, len(stories))
    pushes = _rows(stories, recorder, workers, batches)
    origin_s = min((push.start_s for push in pushes.values()), default=0.0)
    recorder.start_s = [max(0.0, start_s - origin_s) for start_s in recorder.start_s]
    recorder.end_s = [end_s - origin_s for end_s in recorder.end_s]
    given = workers + len(_rows_given(stories[0].entries))
    merger = LogMerger([story.entries for story in stories], [0] * len(stories), given)
    losses: list[float] = []
    merged: dict[int, tuple[int, ...]] = {}
    """The rows that went with each row to shard 0."""
    now_s = 0.0
    while shards := merger.next():
        event = merger.entry(shards[0]).event
        now_s = max(now_s, *(merger.entry(shard).now_s - origin_s for shard in shards))
        if isinstance(event, MEMBERSHIP):
            recorder.member(event.worker, isinstance(event, Joined), now_s)
        for shard in shards:
            entry = merger.entry(shard)
            push = pushed(entry)
            if gated and push is not None and push.finite:
                recorder.crossing(push.worker, shard, False, push.crosses, now_s)
                recorder.merge(shard, push.row, push.merged, now_s)
                if shard == 0:
                    merged[push.row] = push.merged
            deviations = iter(entry.deviations)
            before, owed = len(recorder.group_shard), int(isinstance(event, Joined))
            for decided in entry.decided:
                if isinstance(decided, Applied):
                    owed += len(decided.rows)
                    recorder.apply(shard, *decided[:2], now_s, decided.weights)
                    if shard == 0:
                        rows = [r for row in decided.rows for r in (*merged.get(row, ()), row)]
                        group = [pushes[row].loss for row in rows]
                        losses.append(sum(group) / len(group))
                elif isinstance(decided, Dropped):
                    owed += 1
                    recorder.drop(shard, decided.row, decided.reason, now_s)
                elif isinstance(decided, Released):
                    owed -= 1
                    if gated:
                        crossed = decided.carries
                        deviation = next(deviations, 1.0)
                        recorder.crossing(decided.worker, shard, True, crossed, now_s, deviation)
            if not gated:  # else every reply is told
                recorder.reply(shard, -owed, before)
            merger.advance(shard)
    if not merger.finished:
        raise ValueError(
            f"the shards' logs contradict each other after entries {merger.position}: "
            "a gradient was computed at a version that no log holds"
        )
    return Merged(recorder.schedule(), losses, origin_s)


def _rows(
    stories: Sequence[ShardStory], recorder: Recorder, workers: int, batches: int
) -> dict[int, PushHeader]:
    """Every row that was given out, in order, also those that never came back.

    The first row of a worker that was there at first is not in a log: it is the worker's number.
    """
    pushes: dict[int, PushHeader] = {}
    for story in stories:
        for entry in story.entries:
            push = pushed(entry)
            if push is not None:
                pushes[push.row] = push
    given: dict[int, tuple[int, float]] = {w: (w, 0.0) for w in range(workers)}
    dealt: dict[int, int] = {}
    for entry in stories[0].entries:
        for decided in entry.decided:
            if isinstance(decided, RowGiven):
                given[decided.row] = (decided.worker, entry.now_s)
                if decided.deal is not None:
                    dealt[decided.row] = decided.deal.steps
    if dealt:
        recorder.steps = [dealt.get(row, batches) for row in range(len(given))]
    steps = [0] * recorder.workers
    last = [(0,) * recorder.shards] * recorder.workers
    for row in range(len(given)):
        worker, given_s = given[row]
        step, steps[worker] = steps[worker], steps[worker] + 1
        if row not in pushes:  # never came: it was being computed at the end
            recorder.start(worker, step, max(last[worker]), last[worker], given_s)
            continue
        push = pushes[row]
        last[worker] = push.read
        recorder.start(worker, push.step, push.stamp, push.read, push.start_s)
        if push.fresh:
            recorder.begin_anew(worker, push.step)
        if not math.isnan(push.end_s):
            recorder.finish(row, push.end_s)
    return pushes
