"""What every schedule must satisfy, told from the case alone and not from the code that made it."""

from collections import Counter, defaultdict
from functools import cached_property
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

import tardigrad as tg
from tardigrad.clusters import TimedCluster
from tardigrad.clusters.network import Messages
from tardigrad.core.arrays import Floats
from tardigrad.policies import Policy
from tardigrad.scheduling.schedule import MERGED
from tardigrad.scheduling.validate import validate
from tests.fuzz.fuzz_case import Case
from tests.policies.interrupts import check_interrupts

ROUNDING = 1e-9
"""Seconds: times are sums."""


class Fate(NamedTuple):
    """What became of a row at a shard, and when."""

    time_s: float
    made: int | None
    """The version that it was applied for; None where it was dropped."""


class Facts:
    """A case and its schedule, with what several checks ask."""

    def __init__(self, case: Case, schedule: tg.Schedule) -> None:
        self.case, self.s = case, schedule
        self.shard_of_entry = np.repeat(schedule.group_shard, np.diff(schedule.group_start))
        self.group_of_entry = np.repeat(np.arange(schedule.groups), np.diff(schedule.group_start))
        self.made_s = [
            np.concatenate([[0.0], schedule.group_time_s[schedule.group_shard == shard]])
            for shard in range(schedule.shards)
        ]
        """Per shard, when each version was made."""
        self.absences: dict[int, list[tuple[float, float]]] = defaultdict(list)
        self.network: tg.Network | None = None
        if isinstance(case.cluster, TimedCluster):
            for absence in case.cluster.absences:
                returns = np.inf if absence.returns_s is None else absence.returns_s
                self.absences[absence.worker].append((absence.leaves_s, returns))
            self.network = case.cluster.network
        self.messages: Messages | None = None
        if self.network is not None:
            network, codec = self.network, case.link.codec
            if network.model_bytes is not None and not isinstance(codec, tg.Identity):
                each = max(1, round(network.model_bytes / schedule.shards / 4))
                network = network.pushing(schedule.shards * codec.encoded_bytes(each, 4))
            self.messages = network.realise(case.seed, schedule.workers, schedule.shards)
        self.fates: dict[tuple[int, int], list[Fate]] = defaultdict(list)
        versions = schedule.group_version
        entries = (schedule.group_rows, self.shard_of_entry, self.group_of_entry)
        for row, shard, group in zip(*(e.tolist() for e in entries), strict=True):
            made = int(versions[group]) + 1
            self.fates[row, shard].append(Fate(float(schedule.group_time_s[group]), made))
        drops = (schedule.drop_row, schedule.drop_shard, schedule.drop_time_s)
        for row, shard, time_s in zip(*(d.tolist() for d in drops), strict=True):
            self.fates[row, shard].append(Fate(time_s, None))
        by_worker = [reason in ("unsent", MERGED) for reason in schedule.reasons]
        self.unsent = np.array(by_worker, dtype=bool)[schedule.drop_reason]
        """Drops that are a worker's doing."""
        self.base, self.ramps, self.pulls_part = unwrapped(case.policy)
        full = isinstance(case.link, tg.Full)
        self.everything_crosses = full
        self.undisturbed = self.network is None and not self.absences and full

    @cached_property
    def steps(self) -> list[int]:
        """Of each row."""
        most = self.case.made_work.batches
        return self.s.steps.tolist() if len(self.s.steps) else [most] * self.s.rows

    @cached_property
    def takes_s(self) -> Floats:
        """What the rows take that nobody interrupts: their steps together, each worker's in order.
        Those of an interrupted row count as made."""
        assert isinstance(self.case.cluster, TimedCluster)
        times, made = self.case.cluster.realise(self.case.seed), [0] * self.s.workers
        out = np.empty(self.s.rows)
        for row, (worker, steps) in enumerate(zip(self.s.worker.tolist(), self.steps, strict=True)):
            out[row] = times.step_s(worker, made[worker] + np.arange(steps)).sum()
            made[worker] += steps
        return out

    @cached_property
    def arrives_s(self) -> dict[tuple[int, int], float]:
        """When each gradient, which crosses whole unless it was interrupted, is at each shard that
        runs: not before those that its worker has pushed since it was last away."""
        out: dict[tuple[int, int], float] = {}
        for worker, shard in product(range(self.s.workers), range(self.s.shards)):
            came_s: dict[int, float] = defaultdict(float)
            pushed = np.nonzero((self.s.worker == worker) & np.isfinite(self.s.end_s))[0].tolist()
            for sequence, row in enumerate(pushed):
                took_s = 0.0
                if self.messages is not None:
                    whole = not self.s.interrupted[row]
                    took_s = self.messages.push_s(worker, shard, sequence, whole)
                stay = sum(back <= self.s.start_s[row] for _, back in self.absences[worker])
                came_s[stay] = max(came_s[stay], float(self.s.end_s[row]) + took_s)
                up_s = came_s[stay]
                if self.messages is not None:
                    up_s = self.messages.up_s(shard, up_s)
                out[row, shard] = up_s
        return out

    def left_between(self, worker: int, start_s: float, end_s: float) -> bool:
        return any(start_s <= leaves <= end_s for leaves, _ in self.absences[worker])


def unwrapped(policy: Policy) -> tuple[Policy, list[tg.RampUp], bool]:
    """The policy inside, the ramps around it, and whether workers start with a share of shards."""
    ramps, part = [], False
    while isinstance(policy, tg.RampUp | tg.PartialPull | tg.DyLU):
        if isinstance(policy, tg.RampUp):
            ramps.append(policy)
        part = part or isinstance(policy, tg.PartialPull)
        policy = policy.policy
    return policy, ramps, part or (isinstance(policy, tg.Partial) and policy.pull < 1)


def check_schedule(case: Case, schedule: tg.Schedule) -> None:
    validate(schedule)
    facts = Facts(case, schedule)
    _updates(facts)
    _times(facts)
    _workers(facts)
    _views(facts)
    _outages(facts)
    _membership(facts)
    _fates(facts)
    _answers(facts)
    _groups(facts)
    _bounds(facts)


def _updates(f: Facts) -> None:
    made = np.bincount(f.s.group_shard, minlength=f.s.shards)
    assert made.tolist() == [f.case.updates] * f.case.shards, "every shard makes all its updates"
    assert (f.s.workers, f.s.shards) == (f.case.cluster.workers, f.case.shards)


def _times(f: Facts) -> None:
    s = f.s
    assert (np.diff(s.start_s) >= 0).all(), "rows stand in the order of their starts"
    assert (np.diff(s.group_time_s) >= 0).all(), "groups stand in the order of time"
    ended = np.isfinite(s.end_s)
    applied_s = s.group_time_s[f.group_of_entry]
    assert ended[s.group_rows].all(), "what is applied was computed"
    assert (applied_s >= s.end_s[s.group_rows]).all(), "a gradient is applied after it is computed"
    dropped_late = s.drop_time_s >= s.end_s[s.drop_row]
    assert dropped_late[~f.unsent].all(), "a gradient is dropped after it is computed"
    if isinstance(f.case.cluster, TimedCluster):
        took = f.takes_s
        whole = ended & ~s.interrupted
        assert np.allclose(s.end_s[whole], (s.start_s + took)[whole], rtol=0, atol=ROUNDING)
        late = s.interrupted & (s.end_s > s.start_s + took + ROUNDING)
        assert not late.any(), "what is interrupted is not done yet"


def _workers(f: Facts) -> None:
    """Steps in order; one gradient at a time; nothing starts while its worker is away."""
    s = f.s
    for worker in range(s.workers):
        rows = np.nonzero(s.worker == worker)[0]
        assert s.step[rows].tolist() == list(range(len(rows)))
        for a, b in pairwise(rows.tolist()):
            if np.isfinite(s.end_s[a]):
                assert s.start_s[b] >= s.end_s[a], "a worker computes one gradient at a time"
            else:
                assert f.left_between(worker, s.start_s[a], s.start_s[b]), "lost without a leave"
        for leaves, returns in f.absences[worker]:
            away = (s.start_s[rows] > leaves) & (s.start_s[rows] < returns)
            assert not away.any(), "a worker that is away starts nothing"
            begun = (s.start_s[rows] < leaves) & (s.end_s[rows] > leaves)
            assert not begun.any(), "what a worker had not finished when it left is lost"


def _views(f: Facts) -> None:
    """A view holds versions that were made, and had the time to travel; none comes back older."""
    s = f.s
    travels = 0.0 if f.network is None else f.network.latency_s
    factor = dict.fromkeys(range(s.shards), 1.0)
    for slow in () if f.network is None else f.network.slow_shards:
        factor[slow.shard] = slow.factor
    for shard in range(s.shards):
        read = s.read[:, shard]
        assert (read < len(f.made_s[shard])).all(), "a version that was never made"
        there_s = f.made_s[shard][read] + np.where(read > 0, travels * factor[shard], 0.0)
        assert (there_s <= s.start_s + ROUNDING).all(), "a version is read after it is made"
        for worker in range(s.workers):
            assert (np.diff(read[s.worker == worker]) >= 0).all(), "a view goes back"
    version = np.zeros(s.shards, dtype=np.int64)
    delays = []
    for group in range(s.groups):
        shard = int(s.group_shard[group])
        delays += [version[shard] - s.read[row, shard] for row in s.group(group)]
        version[shard] += 1
    assert delays == s.delays.tolist()
    assert min(delays) >= 0


def _outages(f: Facts) -> None:
    """A shard that is stopped does nothing: it applies, drops and sends when it is back."""
    s = f.s
    for outage in () if f.network is None else f.network.outages:
        returns = np.inf if outage.returns_s is None else outage.returns_s
        for shard, time_s in (
            (s.group_shard, s.group_time_s),
            (s.drop_shard[~f.unsent], s.drop_time_s[~f.unsent]),
        ):
            down = (shard == outage.shard) & (time_s >= outage.stops_s) & (time_s < returns)
            assert not down.any(), f"shard {outage.shard} works while it is stopped"


def _membership(f: Facts) -> None:
    expected = sorted(
        (time_s, worker, joined)
        for worker, spans in f.absences.items()
        for span in spans
        for joined, time_s in enumerate(span)
        if np.isfinite(time_s)
    )
    s = f.s
    columns = (s.member_time_s, s.member_worker, s.member_joined)
    recorded = sorted(zip(*(column.tolist() for column in columns), strict=True))
    within = [event for event in expected if event[0] < s.end_time]
    assert [event for event in recorded if event[0] < s.end_time] == within


def _fates(f: Facts) -> None:
    """Applied or dropped, once; more often only where a link lets a gradient stand in."""
    s = f.s
    again = f.case.link.withholds_pushes and f.case.link.on_drop == "reapply"
    for (row, shard), fates in f.fates.items():
        assert len(fates) == 1 or again, f"row {row} met {len(fates)} fates at shard {shard}"
    if not f.case.link.withholds_pushes:
        _arrivals(f)
    applied = {(int(s.worker[row]), row) for row in s.group_rows.tolist()}
    counted = Counter(worker for worker, _ in applied)
    assert s.applied.tolist() == [counted[worker] for worker in range(s.workers)]


def _arrivals(f: Facts) -> None:
    """Nothing is decided before the gradient is there, and nothing is forgotten that was there
    when the shard made its last version."""
    s = f.s
    at_once = isinstance(f.base, tg.Async | tg.BoundedDelay | tg.Ringmaster | tg.StaleSynchronous)
    for row in np.nonzero(np.isfinite(s.end_s))[0].tolist():
        for shard in range(s.shards):
            arrives_s, fates = f.arrives_s[row, shard], f.fates[row, shard]
            if fates and at_once:
                assert fates[0].time_s == arrives_s, "no time passes between arrival and fate"
            elif fates:
                assert fates[0].time_s >= arrives_s, "a gradient is judged when it has arrived"
            else:
                assert arrives_s >= f.made_s[shard][-1], f"row {row} is lost at shard {shard}"


def _answers(f: Facts) -> None:
    """Who waits for its answers starts when its last gradient has met its fate at every shard."""
    s, base = f.s, f.base
    waits = getattr(base, "wait", True) and not isinstance(
        base, tg.Partial | tg.Rennala | tg.Malenia
    )
    waits = waits and getattr(base, "late", "drop") == "drop"
    if not waits or f.pulls_part or f.case.link.withholds_pushes:
        return
    for worker in range(s.workers):
        rows = np.nonzero(s.worker == worker)[0].tolist()
        for a, b in pairwise(rows):
            if f.left_between(worker, s.start_s[a], s.start_s[b]):
                continue
            for shard in range(s.shards):
                if f.made_s[shard][-1] <= s.start_s[b]:
                    continue  # it has made its last version, and only answers
                fate = f.fates[a, shard]
                assert fate, f"row {b} starts and row {a} has no fate at shard {shard}"
                assert fate[0].time_s <= s.start_s[b]
                if fate[0].made is not None and f.everything_crosses:
                    assert s.read[b, shard] >= fate[0].made, "a worker reads its own write"


def _groups(f: Facts) -> None:
    s, base, workers = f.s, f.base, f.case.cluster.workers
    sizes = np.diff(s.group_start)
    scales = sizes if isinstance(base, tg.Partial) else np.ones(s.groups)
    assert (s.group_scale == scales).all(), "only Partial scales, by its number of gradients"
    for group in range(s.groups):
        rows = s.group(group)
        order = list(zip(s.worker[rows].tolist(), s.step[rows].tolist(), strict=True))
        if not f.case.link.withholds_pushes:
            assert order == sorted(order), "a group stands in worker order"
    if isinstance(base, tg.Async | tg.BoundedDelay | tg.Ringmaster | tg.StaleSynchronous):
        assert (sizes == 1).all()
    if isinstance(base, tg.Sync | tg.Backup | tg.Deadline) and not f.pulls_part:
        for group in range(s.groups):
            who = s.worker[s.group(group)]
            assert len(np.unique(who)) == len(who), "nobody is in a round twice"
    if f.absences or f.ramps or f.pulls_part:
        return
    exact: dict[type[Policy], Any] = {
        tg.Sync: lambda: workers,
        tg.Backup: lambda: workers - base.backups,  # type: ignore[attr-defined]
        tg.SoftSync: lambda: base.group_size(workers),  # type: ignore[attr-defined]
    }
    if type(base) in exact:
        assert (sizes == exact[type(base)]()).all(), "as many as the policy says"
    if isinstance(base, tg.Partial) and base.push is not None:
        assert sizes.min() >= base.push
    if isinstance(base, tg.Quorum) and base.late == "drop":
        assert sizes.min() >= base.size
        assert sizes.max() <= workers
    if isinstance(base, tg.Rennala) and f.everything_crosses:
        assert (sizes == base.batch).all()
    if isinstance(base, tg.Malenia) and f.everything_crosses:
        for group in range(s.groups):
            given = np.bincount(s.worker[s.group(group)], minlength=workers)
            assert given.min() >= 1, "everybody gives one"
            assert workers**2 / (1 / given).sum() >= base.batch - 1e-9, "worth S gradients"
            each = s.weights(group) or np.full(sizes[group], 1 / sizes[group])
            shares = np.bincount(s.worker[s.group(group)], each)
            assert np.allclose(shares, 1 / workers), "each worker counts the same"


def _bounds(f: Facts) -> None:
    s, base = f.s, f.base
    check_interrupts(s, f.case.policy)
    if isinstance(base, tg.BoundedDelay | tg.Ringmaster):
        assert s.delays.max() <= base.max_delay
    rounds = isinstance(base, tg.Sync | tg.Backup | tg.Deadline | tg.Rennala | tg.Malenia)
    rounds = rounds or (isinstance(base, tg.Quorum) and base.late == "drop")
    if rounds and f.everything_crosses and not f.pulls_part:
        assert s.delays.max() == 0, "a round is computed at the version it is applied to"
    known = {
        tg.Backup: "old version",
        tg.Sync: "old version",
        tg.Deadline: "too late",
        tg.Partial: "old stamp",
        tg.BoundedDelay: "delay over bound",
        tg.Ringmaster: "delay at bound",
        tg.Rennala: "old version",
        tg.Malenia: "old version",
        tg.Quorum: "too late",
    }
    # What a worker that left had pushed, or held back, may be lost.
    allowed = {known.get(type(base)), MERGED, "unsent"}
    if base.interrupts:
        allowed.add("interrupted")
    if not f.absences:
        assert set(s.reasons) <= allowed, f"{s.reasons} under {type(base).__name__}"
    if isinstance(base, tg.StaleSynchronous) and base.bound is not None and not f.pulls_part:
        if f.absences or f.ramps:
            return
        for row in range(s.rows):
            done = s.end_s <= s.start_s[row]
            slowest = min(np.count_nonzero(done & (s.worker == w)) for w in range(s.workers))
            assert s.step[row] - slowest <= base.bound, "nobody runs ahead farther than the bound"
    if f.ramps and f.undisturbed and s.shards == 1 and len(f.ramps) == 1:
        (ramp,) = f.ramps
        for version, time_s in enumerate(f.made_s[0][1:]):
            came = len(np.unique(s.worker[s.start_s < time_s]))
            least = min(version, ramp.updates)
            assert came <= 1 + (s.workers - 1) * least // ramp.updates, "one more at a time"
