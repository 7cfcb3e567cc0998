"""A shard's process in another one's place."""

from pathlib import Path

import tardigrad as tg
from tardigrad import rules
from tardigrad.protocol.calls import OpenShard
from tardigrad.protocol.messages import FromShard, Hello
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.runtime.shard_process import ShardProcess, shard_origin
from tardigrad.tasks import TASKS
from tests.recording.small_run import SmallRun, make_setup

TASK = TASKS["logistic_regression"](features=7, classes=3, train_size=100, validation=0)


def test_a_new_process_tells_all_workers_as_soon_as_it_is_opened(tmp_path: Path) -> None:
    """They come in before, and are not heard then; with all that they had said acknowledged by the
    process before it, they have nothing else to say."""
    setup = make_setup(TASK, rules.RULES["sgd"](lr=0.05), tg.Sync(), updates=10)
    SmallRun(setup, tmp_path).run()
    disk = FolderDisk(tmp_path)
    shard = ShardProcess(setup, disk, shard_origin(RecoveredRun(setup, disk), 1, epoch=2))
    for worker in range(3):
        assert shard.hear(Hello(worker, 0, -1), None, 0.0) == []
    _, out = shard.call(OpenShard(setup.updates), 0.0)
    disk.close()
    told = {said.worker: said.releases[-1].version for said in out if isinstance(said, FromShard)}
    assert told == {0: 10, 1: 10, 2: 10}
