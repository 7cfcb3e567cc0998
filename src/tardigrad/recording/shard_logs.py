"""The logs of a shard's processes, one after the other, as one story.

Each process's log begins with what counts of its predecessor's, so a process that was replaced but
still writes changes nothing.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

from tardigrad.protocol.log import LogEntry, LoggedDigest, ShardLog, read_log
from tardigrad.recording.disk import Disk


class Chapter(NamedTuple):
    """What counts of one process's log."""

    epoch: int
    size: int
    """Bytes."""
    entries_before: int


@dataclass
class ShardStory:
    """What a shard's processes have written, as far as it counts, oldest first."""

    entries: list[LogEntry] = field(default_factory=list)
    digests: list[LoggedDigest] = field(default_factory=list)
    chapters: list[Chapter] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """The bytes up to the end of each entry, in its process's log."""
    behind: int | None = None
    """From which entry on nobody was told: the process that recovery added it to was never opened.
    None: all was told."""

    @property
    def epoch(self) -> int:
        """Of the last process; 0: there has been none."""
        return self.chapters[-1].epoch if self.chapters else 0

    @property
    def size(self) -> int:
        """Bytes of the last process's log that count."""
        return self.chapters[-1].size if self.chapters else 0

    def position(self, epoch: int, size: int) -> int | None:
        """How many entries there are up to a place in a process's log; None: it does not count, or
        is not there."""
        for chapter, after in zip(self.chapters, [*self.chapters[1:], None], strict=True):
            if chapter.epoch == epoch and size <= chapter.size:
                stop = len(self.entries) if after is None else after.entries_before
                mine = self.ends[chapter.entries_before : stop]
                return chapter.entries_before + sum(end <= size for end in mine)
        return None

    def keep(self, entries: int) -> None:
        """Let only the first so many entries count."""
        if entries == len(self.entries):
            return
        while self.chapters and self.chapters[-1].entries_before >= entries:
            self.chapters.pop()
        if self.chapters:
            self.chapters[-1] = self.chapters[-1]._replace(size=self.ends[entries - 1])
        del self.entries[entries:], self.ends[entries:]
        self.digests = [digest for digest in self.digests if digest.after <= entries]


def log_name(shard: int, epoch: int) -> str:
    return f"logs/shard-{shard}.{epoch:08d}.log"


def read_story(disk: Disk, shard: int, known: int = 0) -> ShardStory:
    """From the newest process whose log has begun, back to the first.

    known: a process whose log is known to have begun; a list of files may be older than that.
    """
    logs: list[tuple[ShardLog, int]] = []
    prefix = f"logs/shard-{shard}."
    wanted, size = max(_newest(disk, prefix), known), None
    while wanted:
        name = log_name(shard, wanted)
        data = disk.read(name)
        if data is None:
            raise ValueError(f"{name} is missing: a later log of shard {shard} goes on from it")
        if size is not None and len(data) < size:
            raise ValueError(
                f"{name} has {len(data)} bytes, a later log counts {size} of it: a part of the "
                "run's folder was lost, or is not seen from here"
            )
        log = read_log(data if size is None else data[:size], name)
        if log.opening is None:
            raise ValueError(f"{name} does not begin as a log does")
        logs.append((log, log.size if size is None else size))
        wanted, size = log.opening.follows, log.opening.counted
    story = ShardStory()
    for log, counted in reversed(logs):
        assert log.opening is not None
        story.chapters.append(Chapter(log.opening.epoch, counted, len(story.entries)))
        before = len(story.entries)
        if log.opened:
            story.behind = None
        elif log.opening.added and story.behind is None:
            story.behind = before
        story.digests += [d._replace(after=d.after + before) for d in log.digests]
        story.entries += log.entries
        story.ends += log.ends
    return story


def _newest(disk: Disk, prefix: str) -> int:
    """The newest process that has written its opening."""
    for name in reversed(disk.names(prefix)):
        data = disk.read(name)
        if data is not None and read_log(data, name).opening is not None:
            return int(name.removeprefix(prefix).removesuffix(".log"))
    return 0
