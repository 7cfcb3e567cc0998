"""What every schedule must satisfy before anyone executes it."""

from dataclasses import fields

import numpy as np

from tardigrad.core.arrays import Floats
from tardigrad.policies.machine import INTERRUPTED
from tardigrad.scheduling.schedule import Schedule


def validate(schedule: Schedule, where: str = "schedule") -> None:
    """Raise ValueError, naming the array and the place, where the schedule contradicts itself."""

    def check(good: "np.ndarray[tuple[int, ...], np.dtype[np.bool_]] | bool", what: str) -> None:
        flags = np.atleast_1d(np.asarray(good))
        if not flags.all():
            at = int(np.argmin(flags.reshape(len(flags), -1).all(axis=-1)))
            raise ValueError(f"{where} is not a valid schedule: {what} (first at index {at})")

    s = schedule
    check(s.workers >= 1 and s.shards >= 1, "it has no workers or no shards")
    lengths: dict[str, int] = {}
    for f in fields(s):
        array, kind = getattr(s, f.name), f.metadata.get("of")
        if isinstance(array, np.ndarray):
            wanted = np.float64 if f.type == Floats else np.int64
            check(array.dtype == wanted, f"{f.name} holds {array.dtype}, not {wanted.__name__}")
            check(array.ndim == 1 or f.name == "read", f"{f.name} has the wrong shape")
        if kind and (len(array) or f.name not in ("fresh", "steps")):  # which may be left out
            size = len(array)
            check(lengths.setdefault(kind, size) == size, f"{f.name} has the wrong length")
    check(s.read.shape == (s.rows, s.shards), "read has the wrong shape")
    check((s.worker >= 0) & (s.worker < s.workers), "worker names one that does not exist")
    check((s.group_shard >= 0) & (s.group_shard < s.shards), "group_shard does not exist")
    check(len(s.group_start) == s.groups + 1, "group_start has the wrong length")
    check(np.diff(s.group_start) > 0, "a group is empty")
    edges = (int(s.group_start[0]), int(s.group_start[-1]))
    check(edges == (0, len(s.group_rows)), "group_start does not cover group_rows")
    check((s.group_rows >= 0) & (s.group_rows < s.rows), "group_rows names a row that is not there")
    check((s.drop_row >= 0) & (s.drop_row < s.rows), "drop_row names a row that is not there")
    check((s.drop_shard >= 0) & (s.drop_shard < s.shards), "drop_shard does not exist")
    check((s.drop_reason >= 0) & (s.drop_reason < len(s.reasons)), "drop_reason is unknown")
    check((s.drop_after >= 0) & (s.drop_after <= s.groups), "drop_after counts too many groups")
    known = (s.member_worker >= 0) & (s.member_worker < s.workers)
    check(known, "member_worker names one that does not exist")
    check((s.member_joined == 0) | (s.member_joined == 1), "member_joined is neither 0 nor 1")
    orderly = np.diff(np.concatenate([[0], s.member_after, [s.groups]])) >= 0
    check(orderly, "member_after does not count up to the groups")
    check((s.wire_worker >= 0) & (s.wire_worker < s.workers), "wire_worker does not exist")
    check((s.wire_shard >= 0) & (s.wire_shard < s.shards), "wire_shard does not exist")
    check((s.wire_pull | s.wire_sent | 1) == 1, "wire_pull and wire_sent must be 0 or 1")
    check(np.diff(s.wire_after) >= 0, "wire_after runs backwards")
    check((s.reply_shard >= 0) & (s.reply_shard < s.shards), "reply_shard does not exist")
    orderly = np.diff(np.concatenate([[0], s.reply_after, [s.groups]])) >= 0
    check(orderly, "reply_after does not count up to the groups")
    check(np.isfinite(s.group_scale) & (s.group_scale > 0), "group_scale must be positive")
    if len(s.group_weights):
        check(len(s.group_weights) == len(s.group_rows), "group_weights has the wrong length")
        usable = np.isfinite(s.group_weights) & (s.group_weights >= 0)
        check(usable, "group_weights holds what is no weight")
        sums = np.add.reduceat(s.group_weights, s.group_start[:-1])
        check(np.abs(sums - 1) < 1e-9, "the group_weights of a group do not add up to 1")
    check(np.diff(s.group_time_s) >= 0, "group_time_s runs backwards")
    check((s.fresh == 0) | (s.fresh == 1), "fresh is neither 0 nor 1")
    check(s.steps >= 1, "a row takes no steps")
    check(s.read >= 0, "read is negative")
    check((s.step >= 0) & (s.stamp >= 0), "a step or a stamp is negative")
    by_worker = np.lexsort((np.arange(s.rows), s.worker))
    same = np.diff(s.worker[by_worker]) == 0
    check(~same | (np.diff(s.step[by_worker]) == 1), "a worker's steps do not count up by one")
    check(np.isfinite(s.start_s), "start_s is not a time")
    with np.errstate(invalid="ignore"):
        check(~(s.end_s < s.start_s), "a gradient ends before it starts")
    group_of = np.repeat(np.arange(s.groups), np.diff(s.group_start))
    applied_at = s.group_rows * s.shards + s.group_shard[group_of]
    lost_at = s.drop_row * s.shards + s.drop_shard
    # One that a link let be applied again may be too late the second time.
    again = ((s.wire_pull == 0) & (s.wire_sent == 0)).any()
    clash = np.isin(lost_at, applied_at) & (~s.lost | ~again)
    check(~clash, "a gradient was dropped where it was also applied")
    stopped = s.interrupted
    check(~stopped[s.group_rows], "a gradient was applied that was interrupted (group_rows)")
    check(np.isfinite(s.end_s) | ~stopped, "a gradient was interrupted at no time (end_s)")
    other = np.array([reason != INTERRUPTED for reason in s.reasons], dtype=bool)[s.drop_reason]
    check(~(stopped[s.drop_row] & other), "an interrupted gradient was dropped as another")
    pairs = [(row, went) for (went, _), rows in s.merged.items() for row in rows]
    rows, went = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    check(went >= 0, "a merged gradient has no later push to go with (drop_row)")
    check(s.read[rows] <= s.read[went], "a merged gradient read a newer version than its push")
    first = np.zeros(s.rows, dtype=np.int64)
    first[s.group_rows[::-1]] = group_of[::-1]  # of equal rows the last assignment stays
    used = np.unique(s.group_rows)
    for shard in range(s.shards):
        mine = s.group_shard == shard
        reached = np.cumsum(mine) - mine
        check(
            s.read[used, shard] <= reached[first[used]],
            f"a gradient was computed at a version of shard {shard} from the future (read)",
        )
