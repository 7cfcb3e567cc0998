"""Making a shard's `Server` from a run's setup, and bringing its control up to date from a log."""

from collections.abc import Sequence

from tardigrad.engine import Shard
from tardigrad.runtime.control import Control
from tardigrad.runtime.log import Line
from tardigrad.runtime.server import Server
from tardigrad.runtime.setup import Setup


def make_server(setup: Setup, shard: int) -> Server:
    """A shard at version 0."""
    task, sharding = setup.task, setup.sharding
    control = Control(setup.policy, shard, sharding.shards, range(setup.workers), setup.updates)
    theta = task.start()[sharding.slice(shard)].clone()
    numbers = Shard(setup.rule, theta, sharding.layouts[shard], task.batch_size, task.epoch_size)
    buffers = task.start_buffers() if shard == 0 else ()
    return Server(control, numbers, buffers, task.fold if buffers else None, setup.snapshot_every)


def refeed(control: Control, lines: Sequence[Line]) -> None:
    """Let the control live through the log again; it must decide as it did."""
    for number, line in enumerate(lines):
        decided = control.decide(line.event)
        if decided != line.decided:
            raise ValueError(
                f"shard {control.shard}'s log, event {number} ({line.event.kind}): the policy now "
                f"decides {decided}, but the log says {line.decided}; the log is of another "
                "policy, or of another version of its code"
            )
