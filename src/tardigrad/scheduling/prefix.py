"""The beginning of a schedule: what it would be, had it ended after so many groups."""

import hashlib
from dataclasses import replace

import numpy as np

from tardigrad.scheduling.schedule import Schedule


def prefix(schedule: Schedule, groups: int) -> Schedule:
    """The schedule of a run that ended with its `groups`-th group.

    Gradients that had begun by then are there, those that end later as ones that were still being
    computed. What a shard decided in the very moment of the last group is part of it.
    """
    if groups == schedule.groups:
        return schedule
    s, end_s = schedule, float(schedule.group_time_s[groups - 1]) if groups else 0.0
    rows = int(np.searchsorted(s.start_s, end_s, side="right"))
    used = s.group_rows[: s.group_start[groups]]
    rows = max(rows, int(used.max(initial=-1)) + 1)
    with np.errstate(invalid="ignore"):
        ended = np.where(s.end_s[:rows] <= end_s, s.end_s[:rows], np.nan)
    drops = (s.drop_after < groups) | ((s.drop_after == groups) & (s.drop_time_s <= end_s))
    reasons = tuple(sorted({s.reasons[reason] for reason in set(s.drop_reason[drops].tolist())}))
    renumbered = [reasons.index(s.reasons[reason]) for reason in s.drop_reason[drops].tolist()]
    members = (s.member_after <= groups) & (s.member_time_s <= end_s)
    wires = (s.wire_after <= groups) & (s.wire_time_s <= end_s)
    replies = s.reply_after < groups
    cut: dict[str, object] = {
        "group_start": s.group_start[: groups + 1],
        "group_rows": used,
        "group_weights": s.group_weights[: len(used)],
        "reasons": reasons,
        "drop_reason": np.array(renumbered, dtype=np.int64),
    }
    kept = {
        "row": slice(rows),
        "group": slice(groups),
        "drop": drops,
        "member": members,
        "wire": wires,
        "reply": replies,
    }
    for name, field in Schedule.__dataclass_fields__.items():
        of = field.metadata.get("of")
        if of is not None and name not in cut:
            cut[name] = getattr(s, name)[kept[of]]
    cut["end_s"] = ended
    return replace(s, **cut)  # type: ignore[arg-type]


def first_updates(schedule: Schedule, updates: int) -> Schedule:
    """The schedule of a run that ended as soon as every shard had made so many updates."""
    if updates >= schedule.updates:
        return schedule
    places = [np.nonzero(schedule.group_shard == shard)[0] for shard in range(schedule.shards)]
    return prefix(schedule, max(int(mine[updates - 1]) + 1 for mine in places) if updates else 0)


def executed_digest(schedule: Schedule, groups: int) -> str:
    """The SHA-256 of what an execution of the first `groups` groups has read.

    Schedules that agree in it may differ in all that comes later: an execution that stands there
    can go on with either.
    """
    s = schedule
    used = np.zeros(s.rows, dtype=bool)
    entries = int(s.group_start[groups])
    used[s.group_rows[:entries]] = True
    members = s.member_after < groups
    merged = (s.drop_after < groups) & ~s.lost
    parts = (
        s.group_shard[:groups],
        s.group_scale[:groups],
        s.group_start[: groups + 1],
        s.group_rows[:entries],
        *((s.group_weights[:entries],) if len(s.group_weights) else ()),
        *(column[used] for column in (s.worker, s.step, s.read)),
        *(column[members] for column in (s.member_worker, s.member_joined, s.member_after)),
        *(column[merged] for column in (s.drop_row, s.drop_shard)),
    )
    digest = hashlib.sha256(f"{s.workers} {s.shards}".encode())
    for part in parts:
        digest.update(f"{part.shape}".encode())
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()
