"""A run's files one by one: the folder as a disk, epochs, chains of logs, cuts, evaluations."""

import json
import os
from pathlib import Path

import pytest

from tardigrad.protocol.log import LogEntry, Opening, write_digest, write_entry, write_opening
from tardigrad.protocol.messages import Joined
from tardigrad.recording.cuts import (
    CutPlace,
    FoundCut,
    cut_name,
    cut_numbers,
    finish_cut,
    newest_cut,
    next_cut,
)
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.epochs import (
    BEGIN,
    EXTEND,
    FINISH,
    REPLACE,
    Deposed,
    Epochs,
    Length,
    RunFinished,
    finished_with,
    length,
    newest_epoch,
)
from tardigrad.recording.record import begin_record, read_record, resume_record
from tardigrad.recording.shard_logs import log_name, read_story

LENGTH = Length(40, 40)


@pytest.fixture
def disk(tmp_path: Path) -> FolderDisk:
    return FolderDisk(tmp_path)


# The folder as a disk.


def test_what_is_appended_is_read(disk: FolderDisk) -> None:
    disk.append("logs/a", b"one")
    disk.append("logs/a", b"two")
    disk.sync("logs/a")
    disk.close()
    disk.sync("logs/a")  # of one that is not open here
    assert disk.read("logs/a") == b"onetwo"
    assert disk.read("logs/b") is None


def test_a_short_write_is_an_error(disk: FolderDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a full disk: `write` takes a part and tells nothing else."""
    write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[:2]))
    with pytest.raises(OSError, match=r"logs/a: only 2 of 5 bytes were written"):
        disk.append("logs/a", b"hello")
    disk.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error(disk: FolderDisk, tmp_path: Path) -> None:
    (tmp_path / "full").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device"):
        disk.append("full", b"hello")
    disk.close()


def test_of_two_that_create_a_file_one_succeeds_and_it_is_whole(disk: FolderDisk) -> None:
    assert disk.create("epochs/1", b"mine")
    assert not disk.create("epochs/1", b"yours")
    assert disk.read("epochs/1") == b"mine"


def test_files_that_are_not_whole_have_no_name(disk: FolderDisk, tmp_path: Path) -> None:
    disk.replace("cuts/1/a", b"old")
    disk.replace("cuts/1/a", b"new")
    (tmp_path / "cuts/1/b.77.partial").write_bytes(b"ne")
    assert disk.names("cuts/") == ["cuts/1/a"]
    assert disk.read("cuts/1/a") == b"new"
    disk.remove("cuts/1/")
    assert not (tmp_path / "cuts/1").exists()


# Epochs.


def test_epochs_grow_and_say_whose_they_are(disk: FolderDisk) -> None:
    mine = Epochs(disk, "driver A", LENGTH)
    assert [mine.take(BEGIN), mine.take(REPLACE), mine.take(REPLACE)] == [1, 2, 3]
    said = {"driver": "driver A", "purpose": REPLACE, "updates": 40, "first_updates": 40}
    assert newest_epoch(disk) == (3, said)
    mine.check()


def test_a_driver_that_begins_deposes_the_one_before(disk: FolderDisk) -> None:
    first, second = Epochs(disk, "driver A", LENGTH), Epochs(disk, "driver B", LENGTH)
    first.take(BEGIN)
    assert second.take(BEGIN) == 2
    for refused in (first.check, lambda: first.take(REPLACE), lambda: first.take(FINISH)):
        with pytest.raises(Deposed, match=r"another driver \(driver B\) has taken over this run"):
            refused()
    assert second.take(REPLACE) == 3


def test_an_epoch_that_another_takes_meanwhile_is_not_taken_twice(tmp_path: Path) -> None:
    other = Epochs(FolderDisk(tmp_path), "driver B", LENGTH)

    class Overtaken(FolderDisk):
        overtaken = False

        def create(self, name: str, data: bytes) -> bool:
            if not self.overtaken:
                self.overtaken = True
                other.take(BEGIN)
            return super().create(name, data)

    assert Epochs(Overtaken(tmp_path), "driver A", LENGTH).take(BEGIN) == 2
    with pytest.raises(Deposed):
        other.check()


def test_nobody_begins_a_run_that_has_been_finished(disk: FolderDisk) -> None:
    mine = Epochs(disk, "driver A", LENGTH)
    mine.take(BEGIN)
    mine.take(FINISH)
    with pytest.raises(RunFinished):
        Epochs(disk, "driver B", LENGTH).take(BEGIN)


def test_who_extends_a_run_reopens_it_and_deposes_whoever_wants_fewer_updates(
    disk: FolderDisk,
) -> None:
    short, long = Epochs(disk, "driver A", LENGTH), Epochs(disk, "driver B", Length(90, 40))
    short.take(BEGIN)
    with pytest.raises(Deposed, match=r"a run of 40 updates, this one is for 90"):
        long.take(BEGIN)
    short.take(FINISH)
    assert length(disk, 7) == LENGTH
    long.take(EXTEND)
    assert finished_with(disk) is None
    assert length(disk, 7) == Length(90, 40)
    with pytest.raises(Deposed, match=r"\(driver B\) has made this a run of 90 updates"):
        Epochs(disk, "driver C", LENGTH).take(BEGIN)
    with pytest.raises(Deposed):
        short.check()
    assert Epochs(disk, "driver D", Length(90, 40)).take(BEGIN) == 4


def test_a_run_whose_epochs_say_no_length_has_the_one_it_was_begun_with(disk: FolderDisk) -> None:
    disk.create("epochs/00000001.json", b'{"driver": "old", "purpose": "finish"}')
    assert length(disk, 40) == LENGTH
    assert Epochs(disk, "driver A", Length(90, 40)).take(EXTEND) == 2
    assert length(disk, 7) == Length(90, 40)


# The logs of a shard's processes.


def entry(worker: int) -> bytes:
    return write_entry(LogEntry(Joined(worker, 0), 0.0, []))


def write_log(disk: FolderDisk, opening: Opening, *records: bytes) -> int:
    """Its size."""
    data = b"".join([write_opening(opening), *records])
    disk.append(log_name(opening.shard, opening.epoch), data)
    return len(data)


def workers(disk: FolderDisk) -> list[int]:
    """Whose joins the story of shard 0 tells."""
    events = [entry.event for entry in read_story(disk, 0).entries]
    return [event.worker for event in events if isinstance(event, Joined)]


def test_a_log_says_what_counts_of_the_one_before_it(disk: FolderDisk) -> None:
    counted = write_log(disk, Opening(0, 1, 0, 0), entry(0), write_digest(1, "ab"), entry(1))
    size = write_log(disk, Opening(0, 5, 1, counted), entry(2), write_digest(2, "cd"))
    disk.append(log_name(0, 1), entry(7))  # by a process that had been replaced, and did not know
    assert workers(disk) == [0, 1, 2]
    story = read_story(disk, 0)
    assert (story.epoch, story.size) == (5, size)
    assert [(d.version, d.after) for d in story.digests] == [(1, 1), (2, 3)]
    disk.close()


def test_a_process_that_died_before_its_log_began_was_never_there(disk: FolderDisk) -> None:
    write_log(disk, Opening(0, 1, 0, 0), entry(0))
    disk.append(log_name(0, 2), write_opening(Opening(0, 2, 1, 100))[:-3])
    assert workers(disk) == [0]
    assert read_story(disk, 0).epoch == 1
    disk.close()


def test_a_process_whose_predecessor_was_passed_over_follows_the_one_before(
    disk: FolderDisk,
) -> None:
    first = write_log(disk, Opening(0, 1, 0, 0), entry(0))
    write_log(disk, Opening(0, 2, 1, first), entry(7))
    write_log(disk, Opening(0, 3, 1, first), entry(1))
    assert workers(disk) == [0, 1]
    disk.close()


@pytest.mark.parametrize(
    ("left", "why"),
    [(None, r"00000001\.log is missing: a later log"), (20, r"has 20 bytes, a later log counts")],
)
def test_a_lost_log_is_told_by_its_name(
    left: int | None, why: str, disk: FolderDisk, tmp_path: Path
) -> None:
    counted = write_log(disk, Opening(0, 1, 0, 0), entry(0))
    write_log(disk, Opening(0, 2, 1, counted))
    disk.close()
    path = tmp_path / log_name(0, 1)
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)
    with pytest.raises(ValueError, match=why):
        read_story(disk, 0)


def test_a_story_cut_short_goes_on_from_the_right_place(disk: FolderDisk) -> None:
    counted = write_log(disk, Opening(0, 1, 0, 0), entry(0), entry(1))
    write_log(disk, Opening(0, 2, 1, counted), entry(2), write_digest(9, "ab"))
    story = read_story(disk, 0)
    story.keep(2)
    assert (story.epoch, story.size, len(story.entries)) == (1, counted, 2)
    assert story.digests == []
    story.keep(1)
    assert (story.epoch, story.size) == (1, counted - len(entry(1)))
    disk.close()


# Cuts.


def test_a_cut_counts_as_long_as_the_logs_reach_it(disk: FolderDisk, tmp_path: Path) -> None:
    head = write_log(disk, Opening(0, 1, 0, 0), entry(0))
    finish_cut(disk, 0, [CutPlace(1, head)])
    longer = head + len(entry(1))
    disk.append(log_name(0, 1), entry(1))
    finish_cut(disk, 1, [CutPlace(1, longer)])
    assert newest_cut(disk, [read_story(disk, 0)]) == FoundCut([cut_name(1, 0, epoch=1)], [2])
    disk.close()
    os.truncate(tmp_path / log_name(0, 1), longer - 1)
    found = newest_cut(disk, [read_story(disk, 0)])
    assert found == FoundCut([cut_name(0, 0, epoch=1)], [1])


def test_a_cut_of_a_process_that_does_not_count_is_passed_over(disk: FolderDisk) -> None:
    first = write_log(disk, Opening(0, 1, 0, 0), entry(0))
    finish_cut(disk, 0, [CutPlace(1, first)])
    deposed = write_log(disk, Opening(0, 2, 1, first), entry(7))
    finish_cut(disk, 1, [CutPlace(2, deposed)])
    write_log(disk, Opening(0, 3, 1, first), entry(1))
    found = newest_cut(disk, [read_story(disk, 0)])
    assert found == FoundCut([cut_name(0, 0, epoch=1)], [1])
    disk.close()


def test_the_newest_two_cuts_are_kept_and_no_number_is_used_twice(disk: FolderDisk) -> None:
    for number in range(3):
        assert next_cut(disk) == number
        disk.replace(cut_name(number, 0, epoch=1), b"")
        assert next_cut(disk) == number + 1  # though it is not whole yet
        finish_cut(disk, number, [CutPlace(1, 0)])
    assert cut_numbers(disk) == [1, 2]
    assert not disk.names("cuts/000000/")


# The record.


def test_a_run_of_0_1_is_read_and_not_gone_on_with(tmp_path: Path) -> None:
    old = {"format": "tardigrad-ray-1", "finished": False, "began_s": 0.0}
    (tmp_path / "record.json").write_text(json.dumps(old))
    assert read_record(tmp_path) == old
    with pytest.raises(ValueError, match=r"begun by tardigrad 0\.1.*finish it with 0\.1, or start"):
        resume_record(tmp_path, {})


def test_a_folder_in_use_or_of_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no run on Ray"):
        read_record(tmp_path)
    begin_record(tmp_path, {"format": "tardigrad-ray-2"}, 1.5)
    with pytest.raises(ValueError, match="already holds a run on Ray"):
        begin_record(tmp_path, {}, 1.5)
    (tmp_path / "record.json").write_text('{"format": "another"}')
    with pytest.raises(ValueError, match="is not a tardigrad-ray-2 file"):
        read_record(tmp_path)
