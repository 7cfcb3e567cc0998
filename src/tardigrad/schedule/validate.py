"""What every schedule must satisfy before anyone executes it."""

from dataclasses import fields

import numpy as np

from tardigrad.schedule.schedule import Schedule


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
        kind = f.metadata.get("of")
        if kind:
            size = len(getattr(s, f.name))
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
    check((s.drop_reason >= 0) & (s.drop_reason < len(s.reasons)), "drop_reason is unknown")
    check(np.isfinite(s.group_scale) & (s.group_scale > 0), "group_scale must be positive")
    check(np.diff(s.group_time_s) >= 0, "group_time_s runs backwards")
    check(s.read >= 0, "read is negative")
    by_worker = np.lexsort((np.arange(s.rows), s.worker))
    same = np.diff(s.worker[by_worker]) == 0
    check(~same | (np.diff(s.step[by_worker]) == 1), "a worker's steps do not count up by one")
    check(s.delays >= 0, "a gradient was computed at a version from the future (group_rows)")
    with np.errstate(invalid="ignore"):
        check(~(s.end_s < s.start_s), "a gradient ends before it starts")
