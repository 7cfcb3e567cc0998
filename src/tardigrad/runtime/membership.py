"""Workers that join and leave a run, and what becomes of it when the run is killed meanwhile.

Joins and leaves stand in every shard's log. The driver holds all releases until every shard has
been told, so where one stands in some logs only, nothing in the others follows from it: written at
their ends, it is as if all had been told in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tardigrad.runtime.log import Log, Story, mend_log, read_log
from tardigrad.runtime.merge import MEMBERSHIP
from tardigrad.runtime.messages import Event, PushHeader
from tardigrad.runtime.setup import Setup
from tardigrad.runtime.state import make_server, refeed


@dataclass
class Change:
    """Add a worker or remove one, once every shard has made so many updates."""

    at_update: int
    remove: int | None = None


def still_to_make(changes: Sequence[Change], story: Story) -> list[Change]:
    """Those that do not stand in the log of an earlier driver's run."""
    joined = sum(event.kind == "join" for event in _written(story))
    left = {event.what[0] for event in _written(story) if event.kind == "leave"}
    to_make = []
    for change in changes:
        if change.remove is None and joined:
            joined -= 1
        elif change.remove is None or change.remove not in left:
            to_make.append(change)
    return to_make


def complete_membership(setup: Setup) -> None:
    """Write every join and leave that one log has into all. No shard may be running."""
    paths = [setup.log_path(shard) for shard in range(setup.sharding.shards)]
    stories = [read_log(path) for path in paths]
    every = max((_begun(story) for story in stories), key=len)
    pushes = _pushes(stories)
    for shard, (path, story) in enumerate(zip(paths, stories, strict=True)):
        missing = every[len(_written(story)) :]
        if not missing:
            continue
        mend_log(path, story)
        control = make_server(setup, shard).control
        refeed(control, story.lines)
        log = Log(path, setup.sync_log)
        here = _pushes([story])
        now_s = max((line.event.now_s for line in story.lines), default=0.0)
        for kind, then_s, what in missing:
            now_s = max(now_s, then_s)
            events = [Event(kind, now_s, what)]
            if kind == "leave":  # for good: what it pushed to other shards only is lost here
                lost = [p for row, p in pushes.items() if row not in here and p.worker == what[0]]
                events = [*(Event("lost", now_s, tuple(push)) for push in lost), *events]
            for event in events:
                log.event(event, control.decide(event))
        log.close()


def _written(story: Story) -> list[Event]:
    return [line.event for line in story.lines if line.event.kind in MEMBERSHIP]


def _begun(story: Story) -> list[Event]:
    """Also the leave that was to follow what is lost with its worker."""
    events = _written(story)
    last = story.lines[-1].event if story.lines else None
    if last is not None and last.kind == "lost":
        events.append(Event("leave", last.now_s, (PushHeader(*last.what).worker,)))
    return events


def _pushes(stories: Sequence[Story]) -> dict[int, PushHeader]:
    return {
        push.row: push
        for story in stories
        for line in story.lines
        if line.event.kind in ("push", "lost")
        for push in [PushHeader(*line.event.what)]
    }
