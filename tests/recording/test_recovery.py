"""Logs, cuts, merge and recovery together: whatever a network does, and at any moment."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.links import Link
from tardigrad.protocol.calls import JoinWorker, LeaveWorker
from tardigrad.protocol.log import write_digest
from tardigrad.protocol.messages import Applied, Completed, Joined, Left, Replaced
from tardigrad.recording.cuts import cut_name
from tardigrad.recording.disk import FolderDisk
from tardigrad.recording.merge import merge, pushed
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.shard_logs import log_name, read_story
from tardigrad.scheduling import validate
from tardigrad.tasks import TASKS
from tests.recording.small_run import SmallRun, make_setup, same_state

TASK = TASKS["logistic_regression"](features=7, classes=3, train_size=100, validation=0)
POLICIES = {
    "async": tg.Async(),
    "async_no_wait": tg.Async(wait=False),
    "sync": tg.Sync(),
    "backup": tg.Backup(backups=1),
    "partial_pull": tg.Partial(push=2, push_timeout_s=0.5, pull=0.5, pull_timeout_s=0.5),
    "ssp": tg.StaleSynchronous(bound=1),
    "softsync": tg.SoftSync(groups=2, wait=False),
    "bounded": tg.BoundedDelay(max_delay=1),
    "deadline": tg.Deadline(timeout_s=1.0),
    "ssp_partial_pull": tg.PartialPull(tg.StaleSynchronous(bound=2), pull=0.5),
    "ramp_up": tg.RampUp(tg.Async(), updates=10),
}
RULES = {name: rules.RULES[name](lr=0.05) for name in ("gap_aware", "dana_ga", "fasgd")}


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def received(run: SmallRun) -> list[dict[int, int]]:
    """The last step of each worker that came, at each shard."""
    sessions = [shard.replica.session for shard in run.shards]
    return [{w: channel.step for w, channel in s.channels.items()} for s in sessions]


def assert_recovers(run: SmallRun, folder: Path) -> None:
    """What the files tell is what the shards are."""
    recovered = RecoveredRun(run.setup, FolderDisk(folder))
    assert recovered.lost == [0] * len(run.shards)
    for shard, replica in zip(run.shards, recovered.replicas, strict=True):
        assert same_state(shard.replica, replica)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_logs_tell_executes_to_the_same_bits(policy: str, tmp_path: Path) -> None:
    setup = make_setup(TASK, RULES["dana_ga"], POLICIES[policy])
    run = SmallRun(setup, tmp_path).run()
    merged = merge([read_story(run.disk, shard) for shard in range(2)], workers=3)
    validate(merged.schedule)
    assert merged.schedule.updates == 40
    replayed = tg.execute(merged.schedule, TASK, setup.rule, engine="exact")
    assert torch.equal(replayed.params, run.params)
    assert replayed.history.loss == merged.losses


@pytest.mark.parametrize("policy", POLICIES)
def test_a_shard_recovered_at_any_moment_is_the_one_that_was_lost(
    policy: str, tmp_path: Path
) -> None:
    looks = 0

    def look(run: SmallRun) -> None:
        nonlocal looks
        if run.happened % 9 == 0:
            assert_recovers(run, tmp_path)
            looks += 1

    setup = make_setup(TASK, RULES["gap_aware"], POLICIES[policy], updates=20)
    SmallRun(setup, tmp_path, seed=3, look=look).run()
    assert looks > 3


def test_recovery_from_a_cut_equals_recovery_from_the_beginning(tmp_path: Path) -> None:
    """With pushes waiting in a group."""
    waiting: list[int] = []

    def look(run: SmallRun) -> None:
        first, second = received(run)
        pending = len(run.shards[0].replica.pending)
        if not waiting and run.happened > 60 and first == second and pending:
            waiting.append(pending)
            run.cut()
            run.disk.replace(cut_name(0, 0, epoch=0), b"of a process that had been replaced")

    setup = make_setup(TASK, RULES["fasgd"], tg.SoftSync(groups=1, wait=False))
    run = SmallRun(setup, tmp_path, seed=1, look=look).run()
    assert waiting
    assert_recovers(run, tmp_path)
    shutil.rmtree(tmp_path / "cuts")
    assert_recovers(run, tmp_path)


def test_a_gradient_that_waits_while_its_worker_leaves_leaves_no_rows(tmp_path: Path) -> None:
    """The shards, what is recovered from a cut just after, and the replay are the same bits."""
    left: list[int] = []

    def look(run: SmallRun) -> None:
        rows = [shard.replica.session.rows.values() for shard in run.shards]
        waits = all(any(push.worker == 2 for push in mine) for mine in rows)
        first, second = received(run)
        if not left and run.happened > 40 and waits and first == second:
            left.append(2)
            run.leave(2)
            run.cut()

    setup = make_setup(TASK, RULES["dana_ga"], tg.SoftSync(groups=1, wait=False))
    run = SmallRun(setup, tmp_path, seed=1, look=look).run()
    assert left
    assert_recovers(run, tmp_path)
    for shard in run.shards:
        numbers = shard.replica.shard
        assert sorted(numbers.owns) == [0, 1]
        total = sum(own.optimizer.velocity for own in numbers.owns.values())
        assert torch.allclose(numbers.state.optimizer.velocity_sum, total, rtol=0, atol=1e-5)
    merged = merge([read_story(run.disk, shard) for shard in range(2)], workers=3)
    replayed = tg.execute(merged.schedule, TASK, setup.rule, engine="exact")
    assert torch.equal(replayed.params, run.params)


class Killed(Exception):
    """The whole run, at this moment."""


MEMBERS = [tg.Async(), tg.Sync(), tg.Partial(push=2, pull=0.5), tg.StaleSynchronous(bound=1)]


@pytest.mark.parametrize("kind", ["join", "leave"])
@pytest.mark.parametrize("policy", MEMBERS, ids=lambda p: type(p).__name__)
def test_what_one_log_tells_of_members_is_added_to_all(
    policy: tg.policies.Policy, kind: str, tmp_path: Path
) -> None:
    """The run is killed when shard 0 has been told and shard 1 has not."""
    change = JoinWorker(3, 0) if kind == "join" else LeaveWorker(2)
    event = Joined(3, 0) if kind == "join" else Left(2)

    def look(run: SmallRun) -> None:
        first, second = received(run)
        if run.happened < 40 or first[2] != second[2]:  # who leaves has pushed to all
            return
        run.call(0, change)
        recovered = RecoveredRun(run.setup, FolderDisk(tmp_path))
        run.call(1, change)
        assert [entry.event for entry in recovered.added[1]] == [event]
        assert recovered.added[0] == []
        assert recovered.changes_made() == ((1, set()) if kind == "join" else (0, {2}))
        for shard, replica in zip(run.shards, recovered.replicas, strict=True):
            assert shard.replica.session.channels == replica.session.channels
        raise Killed

    setup = make_setup(TASK, RULES["dana_ga"], policy, updates=20)
    with pytest.raises(Killed):
        SmallRun(setup, tmp_path, seed=5, look=look).run()


def test_what_a_worker_had_pushed_to_some_is_added_with_its_leave(tmp_path: Path) -> None:
    """Worker 2 died for good, and shard 1 has lost its last gradient."""

    def look(run: SmallRun) -> None:
        first, second = received(run)
        if run.happened < 12 or first[2] <= second[2]:
            return
        run.call(0, LeaveWorker(2))
        headers = [pushed(entry) for entry in read_story(run.disk, 0).entries]
        (half,) = [p for p in headers if p is not None and (p.worker, p.step) == (2, first[2])]
        recovered = RecoveredRun(run.setup, FolderDisk(tmp_path))
        replaced, completed, left = recovered.added[1]
        assert (replaced.event, completed.event) == (Replaced(2, 1), Completed(half))
        assert left.event == Left(2)
        assert completed.decided[0] == Applied((half.row,), 1.0)
        assert recovered.halves(2) == []
        raise Killed

    setup = make_setup(TASK, RULES["dana_ga"], tg.Async(), updates=20)
    with pytest.raises(Killed):
        SmallRun(setup, tmp_path, seed=5, look=look).run()


def finished(folder: Path, shards: int = 1) -> SmallRun:
    return SmallRun(make_setup(TASK, RULES["fasgd"], tg.Async(), shards=shards), folder).run()


def log_of(folder: Path, shard: int = 0) -> Path:
    return folder / log_name(shard, 1)


def test_a_torn_end_is_as_if_it_had_not_happened(tmp_path: Path) -> None:
    run = finished(tmp_path)
    data = log_of(tmp_path).read_bytes()
    digest_at = data.rindex(b"\n", 0, -1) + 1  # the last record is the digest of version 40
    log_of(tmp_path).write_bytes(data[: digest_at - 5])
    recovered = RecoveredRun(run.setup, run.disk)
    assert recovered.replicas[0].shard.version == 39
    assert recovered.stories[0].size == data.rindex(b"\n", 0, digest_at - 1) + 1


def test_entries_that_a_lost_end_no_longer_explains_are_void(tmp_path: Path) -> None:
    """Shard 1's machine lost power; shard 0 has gradients that were computed at what it lost."""
    run = finished(tmp_path, shards=2)
    data = log_of(tmp_path, 1).read_bytes()
    log_of(tmp_path, 1).write_bytes(data[: len(data) // 2])
    recovered = RecoveredRun(run.setup, run.disk)
    assert recovered.lost[0] > 0
    assert recovered.lost[1] == 0
    written = len(read_story(run.disk, 0).entries)
    assert len(recovered.stories[0].entries) == written - recovered.lost[0]
    made = [replica.shard.version for replica in recovered.replicas]
    assert 10 < min(made) <= max(made) < 40


def test_a_log_of_another_policy_is_refused(tmp_path: Path) -> None:
    run = finished(tmp_path)
    other = make_setup(TASK, RULES["fasgd"], tg.Sync(), shards=1)
    with pytest.raises(ValueError, match="the log is of another policy"):
        RecoveredRun(other, run.disk)


def test_a_log_executed_to_other_bits_is_told_by_its_version(tmp_path: Path) -> None:
    run = finished(tmp_path)
    data = log_of(tmp_path).read_bytes()
    (true,) = [d.digest for d in read_story(run.disk, 0).digests if d.version == 20]
    wrong = write_digest(20, "0123456789abcdef")
    log_of(tmp_path).write_bytes(data.replace(write_digest(20, true), wrong))
    with pytest.raises(ValueError, match=r"shard 0, version 20: .* the log says 0123456789abcdef"):
        RecoveredRun(run.setup, run.disk)
    true_to_rounding = RecoveredRun(run.setup, run.disk, to_the_bit=False)
    assert true_to_rounding.rounded == 1
    assert true_to_rounding.replicas[0].shard.version == 40


def test_logs_that_contradict_each_other_are_not_merged(tmp_path: Path) -> None:
    run = finished(tmp_path, shards=2)
    stories = [read_story(run.disk, shard) for shard in range(2)]
    stories[1].keep(len(stories[1].entries) // 2)
    with pytest.raises(ValueError, match="contradict each other after entries"):
        merge(stories, workers=3)


@pytest.mark.parametrize("link", [tg.Full(), tg.Every(pull=2)], ids=["full", "every"])
@pytest.mark.parametrize("policy", POLICIES)
def test_whatever_end_a_log_has_lost_what_came_elsewhere_can_be_completed(
    policy: str, link: Link, tmp_path: Path
) -> None:
    """A version may be in the log, and its release to a worker, which has pushed since, not."""
    made = make_setup(TASK, RULES["fasgd"], POLICIES[policy], updates=12)
    setup = replace(made, link=link)
    SmallRun(setup, tmp_path).run()
    path = tmp_path / log_name(1, 1)
    lines = path.read_bytes().splitlines(keepends=True)
    for end in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:end]))
        recovered = RecoveredRun(setup, FolderDisk(tmp_path))
        for worker, shard in product(range(3), range(2)):
            kept = recovered.sessions[shard].channels[worker].kept
            missing = [h.push for h in recovered.halves(worker) if shard in h.missing]
            carried = {released.version for released in kept if released.carries}
            assert {push.read[shard] for push in missing} <= carried
