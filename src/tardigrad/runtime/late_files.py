"""Waiting for files that another machine has written, in a folder that shows them late.

A network's file system may remember for a while what it has seen of a folder (NFS up to a minute,
SMB and sshfs for ten seconds and more), and a log that is overlooked is as good as lost.
"""

import time
from collections.abc import Callable, Sequence

from tardigrad.protocol.run_processes import RunFailed
from tardigrad.recording.disk import Disk

SEEN_S = 90.0
TOLD_S = 3.0
POLL_S = 0.25


def wait_until_seen(
    disk: Disk,
    names: Sequence[str],
    say: Callable[[str], None] = lambda text: None,
    limit_s: float = SEEN_S,
) -> None:
    """Of files that are there, because who wrote them has said so."""
    began_s, told = time.monotonic(), False
    while unseen := [name for name in names if disk.read(name) is None]:
        waited_s = time.monotonic() - began_s
        if waited_s > limit_s:
            raise RunFailed(
                f"{unseen[0]} was written {waited_s:.0f} s ago by another process and is not seen "
                "from here: put the run into a folder that all nodes see under the same path"
            )
        if waited_s > TOLD_S and not told:
            told = True
            say(
                f"{unseen[0]} is not seen from here yet: the run's folder shows other machines' "
                "files late, and what needs them waits"
            )
        time.sleep(POLL_S)
