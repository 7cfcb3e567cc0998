"""A folder that shows other machines' files late: what is known to be there is not overlooked."""

from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad import rules
from tardigrad.protocol.run_processes import RunFailed
from tardigrad.recording.disk import FolderDisk
from tardigrad.runtime import ActorPool, train, training
from tardigrad.runtime.late_files import TOLD_S, wait_until_seen
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

LOG = "logs/shard-0.00000001.log"


class LateDisk(FolderDisk):
    """Files are seen when they have been looked for so often; in lists, logs never are."""

    def __init__(self, folder: Path, looks: int = 0) -> None:
        super().__init__(folder)
        self.looks = looks

    def read(self, name: str) -> bytes | None:
        self.looks -= 1
        return super().read(name) if self.looks < 0 else None

    def names(self, prefix: str) -> list[str]:
        return [name for name in super().names(prefix) if not name.startswith("logs/")]


def test_who_needs_a_file_waits_until_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, said = LateDisk(tmp_path, looks=3), list[str]()
    disk.create(LOG, b"here")
    monkeypatch.setattr("tardigrad.runtime.late_files.TOLD_S", 0.0)
    wait_until_seen(disk, [LOG], said.append)
    assert disk.looks == -1
    assert len(said) == 1
    assert said[0].startswith(f"{LOG} is not seen from here yet")


def test_a_file_that_is_never_seen_ends_the_run_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=f"{LOG} was written .* a folder that all nodes see"):
        wait_until_seen(FolderDisk(tmp_path), [LOG], limit_s=TOLD_S / 10)


def test_logs_that_no_list_shows_yet_are_read(
    tmp_path: Path, pool: ActorPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the driver, when a shard has died and at the end."""
    monkeypatch.setattr(training, "FolderDisk", LateDisk)
    task, rule = TASKS["logistic_regression"](), rules.RULES["dana_ga"](lr=0.02)
    run = train(
        task,
        rule,
        tg.Sync(),
        workers=2,
        shards=2,
        updates=40,
        checkpoints=tg.Checkpoints(tmp_path, every=15),
        processes=tg.Processes(pool=pool, digest_every=10),
        scenario=tg.Scenario(faults=[tg.runtime.fail_at(shard=1, version=20)]),
    )
    assert_replays(run, task, rule, 40)
    assert_nothing_lost_or_twice(tmp_path, 2, 40)
