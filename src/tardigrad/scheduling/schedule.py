"""The Schedule: everything that control decided, in flat arrays, and nothing of tensors.

Who pushed when, which versions each gradient was computed at, what was applied in which order and
what was dropped. Executing it needs a task and a rule; asking it for delays or waiting times does
not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tardigrad.core.arrays import Flags, Floats, Ints
from tardigrad.policies.machine import INTERRUPTED
from tardigrad.protocol.messages import NOT_FINITE

if TYPE_CHECKING:
    from tardigrad.policies import Policy


MERGED = "merged"
"""Held back by a link, and averaged into the same worker's next push to that shard."""


def _no_ints() -> Ints:
    return np.empty(0, dtype=np.int64)


def _no_floats() -> Floats:
    return np.empty(0)


@dataclass(frozen=True, eq=False)
class Schedule:
    """One row per gradient in the order of their starts; per update, the rows that made it.

    Rows that were still being computed or travelling at the end are there too (`end_s` is NaN, or
    no group names them): who deals out samples by order of start must see them. So are rows that
    were interrupted (`interrupted`), whose `end_s` is when: nobody computes them, but their step
    has used up its batch.

    A row counts at a shard once, unless a link let it be applied again in place of one that did not
    cross; it may be applied at one shard and dropped at another. Groups of all shards stand in one
    list, in order of application; shard s is at version k after its k-th group.
    """

    workers: int
    shards: int

    worker: Ints = field(metadata={"of": "row"})
    step: Ints = field(metadata={"of": "row"})
    start_s: Floats = field(metadata={"of": "row"})
    end_s: Floats = field(metadata={"of": "row"})
    stamp: Ints = field(metadata={"of": "row"})
    read: Ints = field(metadata={"of": "row"})
    """Version of each shard in the row's view: shape (rows, shards)."""

    group_shard: Ints = field(metadata={"of": "group"})
    group_time_s: Floats = field(metadata={"of": "group"})
    group_scale: Floats = field(metadata={"of": "group"})
    group_start: Ints
    """Group i is group_rows[group_start[i] : group_start[i + 1]]; one longer than the groups."""
    group_rows: Ints

    drop_row: Ints = field(default_factory=_no_ints, metadata={"of": "drop"})
    drop_shard: Ints = field(default_factory=_no_ints, metadata={"of": "drop"})
    drop_time_s: Floats = field(default_factory=_no_floats, metadata={"of": "drop"})
    drop_reason: Ints = field(default_factory=_no_ints, metadata={"of": "drop"})
    """Index into `reasons`."""
    drop_after: Ints = field(default_factory=_no_ints, metadata={"of": "drop"})
    """How many groups, of all shards, had been applied by then."""

    member_worker: Ints = field(default_factory=_no_ints, metadata={"of": "member"})
    member_joined: Ints = field(default_factory=_no_ints, metadata={"of": "member"})
    """1 where the worker came, 0 where it went."""
    member_time_s: Floats = field(default_factory=_no_floats, metadata={"of": "member"})
    member_after: Ints = field(default_factory=_no_ints, metadata={"of": "member"})

    wire_worker: Ints = field(default_factory=_no_ints, metadata={"of": "wire"})
    """A link's decisions, in order: one per push and per reply, of each shard. None are recorded
    where everything crosses."""
    wire_shard: Ints = field(default_factory=_no_ints, metadata={"of": "wire"})
    wire_pull: Ints = field(default_factory=_no_ints, metadata={"of": "wire"})
    """0 for a push, 1 for a reply."""
    wire_sent: Ints = field(default_factory=_no_ints, metadata={"of": "wire"})
    """1 where the tensor crossed, 0 where only the header did."""
    wire_time_s: Floats = field(default_factory=_no_floats, metadata={"of": "wire"})
    wire_after: Ints = field(default_factory=_no_ints, metadata={"of": "wire"})
    wire_deviation: Floats = field(default_factory=_no_floats, metadata={"of": "wire"})
    """The deviation that rode on a reply; NaN for a push."""

    reply_shard: Ints = field(default_factory=_no_ints, metadata={"of": "reply"})
    reply_extra: Ints = field(default_factory=_no_ints, metadata={"of": "reply"})
    """Replies beyond one for each gradient that the shard applied or dropped then, and one for each
    worker that returned; negative where fewer were sent. None where a link's decisions are told."""
    reply_after: Ints = field(default_factory=_no_ints, metadata={"of": "reply"})

    fresh: Ints = field(default_factory=_no_ints, metadata={"of": "row"})
    """1 where what a worker keeps for itself begins anew; empty: as `fresh_rows` finds it."""
    steps: Ints = field(default_factory=_no_ints, metadata={"of": "row"})
    """How many batches each row takes; empty: as many as the work always takes."""

    group_weights: Floats = field(default_factory=_no_floats)
    """Beside `group_rows`: how much each counts in its group, together 1. None: all the same."""

    reasons: tuple[str, ...] = ()
    clockless: bool = False
    about: dict[str, Any] = field(default_factory=dict)
    """What made it, for people: policy, cluster, seed."""

    @property
    def clock(self) -> Literal["virtual", "measured", "events"]:
        """What its times are: simulated seconds, those of a real run, or counted events."""
        if self.clockless:
            return "events"
        return "measured" if self.about.get("cluster", {}).get("name") == "ray" else "virtual"

    @property
    def rows(self) -> int:
        return len(self.worker)

    @property
    def groups(self) -> int:
        return len(self.group_shard)

    @property
    def updates(self) -> int:
        """Versions that every shard has reached."""
        if self.shards == 1:
            return self.groups
        return int(np.bincount(self.group_shard, minlength=self.shards).min())

    @property
    def end_time(self) -> float:
        """When the last update was made, by `clock`; 0 with none."""
        return float(self.group_time_s[-1]) if self.groups else 0.0

    def group(self, index: int) -> Ints:
        """The rows of one group, in worker order."""
        return self.group_rows[self.group_start[index] : self.group_start[index + 1]]

    def weights(self, index: int) -> tuple[float, ...]:
        """Of the rows of one group; none where they all count the same."""
        if not len(self.group_weights):
            return ()
        mine = self.group_weights[self.group_start[index] : self.group_start[index + 1]]
        return () if (mine == mine[0]).all() else tuple(mine.tolist())

    @property
    def weighted(self) -> bool:
        """Whether some gradients count more than others of their group."""
        if not len(self.group_weights):
            return False
        least, most = (
            by.reduceat(self.group_weights, self.group_start[:-1])
            for by in (np.minimum, np.maximum)
        )
        return bool((least < most).any())

    @property
    def group_version(self) -> Ints:
        """The version of its shard that each group was applied to (0 for a shard's first)."""
        out = np.empty(self.groups, dtype=np.int64)
        for shard in range(self.shards):
            mine = self.group_shard == shard
            out[mine] = np.arange(int(mine.sum()))
        return out

    @property
    def delays(self) -> Ints:
        """One per applied gradient: updates between the version it read and its application."""
        sizes = np.diff(self.group_start)
        version = np.repeat(self.group_version, sizes)
        shard = np.repeat(self.group_shard, sizes)
        return np.asarray(version - self.read[self.group_rows, shard], dtype=np.int64)

    @property
    def applied(self) -> Ints:
        """How many gradients each worker has had applied, each counted once: at however many
        shards, and however often a link let it be applied."""
        return self._per_worker(self.group_rows)

    @property
    def dropped(self) -> Ints:
        """How many gradients each worker has had dropped, at one shard or more; each counted once.
        One that other shards applied counts in `applied` too."""
        return self._per_worker(self.drop_row[self.lost])

    @property
    def lost(self) -> Flags:
        """Which drops are losses: a gradient that was merged into a later one is not lost."""
        return np.array([r != MERGED for r in self.reasons], dtype=bool)[self.drop_reason]

    @property
    def finite(self) -> Flags:
        """Which gradients were not dropped as NaN or infinite."""
        return ~self._dropped_as(NOT_FINITE)

    @property
    def interrupted(self) -> Flags:
        """Which gradients were not computed to the end, because a shard told their worker to stop:
        one shard has dropped them so, and none applies them."""
        return self._dropped_as(INTERRUPTED)

    def _dropped_as(self, reason: str) -> Flags:
        out = np.zeros(self.rows, dtype=bool)
        if reason in self.reasons:
            out[self.drop_row[self.drop_reason == self.reasons.index(reason)]] = True
        return out

    @property
    def fresh_rows(self) -> Flags:
        """Which gradients are computed with a worker's state as it begins: its first, those after
        it came back, and those of a process that took its place.

        Told by `fresh`. Where that is empty nobody has taken a worker's place: what is left are
        its first step and, by the clock, its first start since it came back, with all that follow
        one that was interrupted or not finite and has left the state as it was."""
        out: Flags = self.step == 0
        if len(self.fresh):
            return np.equal(self.fresh, 1)
        joined = self.member_joined == 1
        came = zip(self.member_worker[joined], self.member_time_s[joined], strict=True)
        for worker, time_s in came:
            later = np.nonzero((self.worker == worker) & (self.start_s >= time_s))[0]
            unchanged = np.cumprod(~(self.finite & ~self.interrupted)[later])
            out[later[: 1 + int(unchanged.sum())]] = True
        return out

    def first_batch(self, batches: int) -> tuple[Ints, Ints]:
        """Of each row, where its first batch stands in the deal to all workers, which is in order
        of rows, and in its worker's own sequence. Rows take `batches`, unless `steps` says it."""
        if not len(self.steps):
            return np.arange(self.rows) * batches, self.step * batches
        own = np.empty(self.rows, dtype=np.int64)
        for worker in range(self.workers):
            mine = self.worker == worker
            own[mine] = np.cumsum(self.steps[mine]) - self.steps[mine]
        return np.cumsum(self.steps) - self.steps, own

    def _per_worker(self, rows: Ints) -> Ints:
        return np.bincount(self.worker[np.unique(rows)], minlength=self.workers)

    @property
    def merged(self) -> dict[tuple[int, int], list[int]]:
        """The rows averaged into each push: {(row that went, shard): rows that went with it}.

        A merged row goes with its worker's next row that is not merged at that shard, but for those
        that were not finite, with which nothing goes.
        """
        out: dict[tuple[int, int], list[int]] = {}
        if MERGED not in self.reasons:
            return out
        chosen = self.drop_reason == self.reasons.index(MERGED)
        rows, shards = self.drop_row[chosen].tolist(), self.drop_shard[chosen].tolist()
        pairs = sorted(zip(rows, shards, strict=True))
        by_worker = np.lexsort((np.arange(self.rows), self.worker))
        following = np.full(self.rows, -1, dtype=np.int64)
        same = self.worker[by_worker[1:]] == self.worker[by_worker[:-1]]
        following[by_worker[:-1][same]] = by_worker[1:][same]
        nowhere: set[tuple[int, int]] = set()
        if NOT_FINITE in self.reasons:
            chosen = self.drop_reason == self.reasons.index(NOT_FINITE)
            rows, shards = self.drop_row[chosen].tolist(), self.drop_shard[chosen].tolist()
            nowhere.update(zip(rows, shards, strict=True))
        went: dict[tuple[int, int], int] = {}
        for row, shard in reversed(pairs):
            after = int(following[row])
            while (after, shard) in nowhere:
                after = int(following[after])
            went[row, shard] = went.get((after, shard), after)
        for pair in pairs:
            out.setdefault((went[pair], pair[1]), []).append(pair[0])
        return out

    @property
    def waiting_s(self) -> Floats:
        """Per worker, the time between a push and the start of its next gradient, added up."""
        by_worker = np.argsort(self.worker, kind="stable")
        gaps = self.start_s[by_worker[1:]] - self.end_s[by_worker[:-1]]
        known = (np.diff(self.worker[by_worker]) == 0) & np.isfinite(gaps)
        who = self.worker[by_worker[1:]][known]
        return np.asarray(np.bincount(who, gaps[known], self.workers), dtype=np.float64)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schedule):
            return NotImplemented
        return all(_same(getattr(self, f.name), getattr(other, f.name)) for f in fields(self))

    __hash__ = None  # type: ignore[assignment]

    @staticmethod
    def from_order(
        order: Sequence[int] | Ints,
        num_workers: int,
        policy: "Policy | None" = None,
        shards: int = 1,
    ) -> "Schedule":
        """The schedule in which gradients arrive in exactly this order of workers."""
        from tardigrad.scheduling.make import schedule_from_order

        return schedule_from_order(order, num_workers, policy, shards)

    def save(self, path: str | Path) -> None:
        """Write to one file, atomically."""
        from tardigrad.scheduling.files import save_schedule

        save_schedule(self, Path(path))

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that an execution of it depends on."""
        from tardigrad.scheduling.files import schedule_digest

        return schedule_digest(self)

    @staticmethod
    def load(path: str | Path) -> "Schedule":
        """Read back and validate; a truncated or altered file is refused."""
        from tardigrad.scheduling.files import load_schedule

        return load_schedule(Path(path))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    return bool(a == b)
