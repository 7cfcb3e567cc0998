"""Copies and bytes that crossed the wire, both ways, and those that could have."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tardigrad.core.arrays import Ints
from tardigrad.scheduling.schedule import Schedule


@dataclass(frozen=True)
class Copies:
    """One direction. A copy is one shard's slice: of a gradient, or of the parameters."""

    potential: int
    """Opportunities: copies had nothing been held back, nor encoded."""
    sent: int
    potential_bytes: int
    sent_bytes: int

    @property
    def share(self) -> float:
        """Bytes that crossed, of those that could have."""
        return self.sent_bytes / self.potential_bytes if self.potential_bytes else 1.0


@dataclass(frozen=True)
class Traffic:
    """Gradients to the servers (`push`) and parameters back (`pull`); headers are not counted."""

    push: Copies
    pull: Copies

    def record(self) -> dict[str, float]:
        """As columns of a history record."""
        return {
            "push_bytes": self.push.sent_bytes,
            "pull_bytes": self.pull.sent_bytes,
            "push_bytes_potential": self.push.potential_bytes,
            "pull_bytes_potential": self.pull.potential_bytes,
        }


def traffic(
    schedule: Schedule,
    shard_bytes: Sequence[int],
    groups: int | None = None,
    push_bytes: Sequence[int] | None = None,
) -> Traffic:
    """What crossed before the given number of groups had been applied (None: in all).

    Args:
        shard_bytes: the bytes of each shard's slice of the parameters.
        push_bytes: those of its slice of a gradient as it travels; None: the same.

    A link's decisions are counted as recorded. With `Full` every gradient that a shard applied or
    dropped counts one push and one pull, and every return of a worker one pull; one that was
    interrupted is pushed as a header alone. What was sent
    beyond that (`Partial`'s broadcasts, answers to who asks for a later version), or was not, is
    counted as recorded.
    """
    sizes = np.asarray(shard_bytes, dtype=np.int64)
    pushed_sizes = sizes if push_bytes is None else np.asarray(push_bytes, dtype=np.int64)
    travelling = (pushed_sizes, sizes)
    if len(schedule.wire_shard):
        until = len(schedule.wire_after)
        if groups is not None:
            until = int(np.searchsorted(schedule.wire_after, groups))
        shard, pull = schedule.wire_shard[:until], schedule.wire_pull[:until] == 1
        sent = schedule.wire_sent[:until] == 1
        ways = ((shard[way], shard[way & sent]) for way in (~pull, pull))
        counts = ([np.bincount(of, minlength=len(sizes)) for of in way] for way in ways)
        return Traffic(
            *(
                _copies(potential, crossed, sizes, travel)
                for (potential, crossed), travel in zip(counts, travelling, strict=True)
            )
        )
    done = schedule.groups if groups is None else groups
    applied = np.diff(schedule.group_start[: done + 1])
    arrived = np.repeat(schedule.group_shard[:done], applied)
    until = done + 1 if groups is None else done
    dropped = schedule.drop_shard[schedule.drop_after < until]
    arrived = np.concatenate([arrived, dropped])
    returns = (schedule.member_joined == 1) & (schedule.member_after < until)
    back = np.tile(np.arange(schedule.shards), int(returns.sum()))
    replies = np.concatenate([arrived, back])
    pushed = np.bincount(arrived, minlength=schedule.shards)
    unmade = schedule.interrupted[schedule.drop_row] & (schedule.drop_after < until)
    pushed -= np.bincount(schedule.drop_shard[unmade], minlength=schedule.shards)
    pulled = np.bincount(replies, minlength=schedule.shards)
    chosen = schedule.reply_after < until
    np.add.at(pulled, schedule.reply_shard[chosen], schedule.reply_extra[chosen])
    return Traffic(
        *(
            _copies(count, count, sizes, travel)
            for count, travel in zip((pushed, pulled), travelling, strict=True)
        )
    )


def copies_curve(schedule: Schedule, pull: bool) -> tuple[Ints, Ints]:
    """(potential copies, copies that crossed) after each opportunity in one direction: the panels
    of B-FASGD's figure."""
    sent = schedule.wire_sent[schedule.wire_pull == int(pull)]
    return np.arange(1, len(sent) + 1), np.cumsum(sent)


def _copies(potential: Ints, crossed: Ints, sizes: Ints, travel: Ints) -> Copies:
    """Of opportunities and copies that crossed, shard by shard; sizes: of a slice as it is, and as
    it travels."""
    return Copies(
        int(potential.sum()), int(crossed.sum()), int(potential @ sizes), int(crossed @ travel)
    )
