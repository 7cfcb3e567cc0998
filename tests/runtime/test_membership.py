"""Workers join and leave while the run, or a shard of it, is killed."""

import json
import os
import shutil
import signal

import pytest
import ray
from in_process import Cluster, make_setup, same_state
from run_checks import assert_nothing_lost_or_twice, assert_replays
from tardigrad.runtime.log import Line, Story, read_log
from tardigrad.runtime.membership import complete_membership, still_to_make
from tardigrad.runtime.messages import Dropped, Event
from tardigrad.runtime.recovery import Recovered

import tardigrad as tg
from tardigrad import rules
from tardigrad.runtime import Change, train
from tardigrad.runtime.driver import Driver
from tardigrad.tasks import TASKS

TASK = TASKS["logistic_regression"](features=7, classes=3, train_size=100, validation=0)
RULE = rules.RULES["dana_ga"](lr=0.02)
POLICIES = [tg.Async(), tg.Sync(), tg.Partial(push=2, pull=0.5), tg.StaleSynchronous(bound=1)]


SMALL = {"updates": 20}


class Killed(Exception):
    """The whole run, at this moment."""


def assert_recovered(cluster, setup):
    """What the logs tell is what the shards are, and telling them again changes nothing."""
    recovered = Recovered(setup)
    for shard, server in enumerate(cluster.servers):
        again = recovered.servers[shard]
        assert recovered.reached_end(shard)
        assert same_state(server, again)
        assert server.control.releases == again.control.releases
        assert server.control.members == again.control.members
    paths = [setup.log_path(shard) for shard in range(2)]
    before = [path.read_bytes() for path in paths]
    complete_membership(setup)
    assert before == [path.read_bytes() for path in paths]


@pytest.mark.parametrize("kind", ["join", "leave"])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: type(p).__name__)
def test_what_one_log_tells_of_members_is_written_into_all(policy, kind, tmp_path):
    """The run is killed when shard 0 has been told and shard 1 has not."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    there = make_setup(TASK, RULE, policy, dead, **SMALL)

    def look(cluster):
        received = [server.control.received[2] for server in cluster.servers]
        if sum(cluster.events) < 40 or len(set(received)) > 1:  # who leaves has pushed to all
            return
        event = Event(kind, float(cluster.now), (3 if kind == "join" else 2,))
        cluster.after_event = lambda cluster: None
        cluster.handle(0, event)
        shutil.copytree(live, dead)
        cluster.handle(1, event)
        assert not Recovered(there).reached_end(0)
        complete_membership(there)
        assert_recovered(cluster, there)
        raise Killed

    setup = make_setup(TASK, RULE, policy, live, **SMALL)
    with pytest.raises(Killed):
        Cluster(setup, seed=5, after_event=look).run()


@pytest.mark.parametrize("told", ["leave at shard 0", "loss at shard 1"])
def test_what_is_lost_with_a_worker_is_written_with_its_leave(told, tmp_path):
    """Worker 2 died for good, and shard 1 has not got its last gradient."""
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    there = make_setup(TASK, RULE, tg.Async(), dead, **SMALL)

    def look(cluster):
        first, second = (server.control.received[2] for server in cluster.servers)
        if sum(cluster.events) < 20 or first <= second:
            return
        pushes = [e for e, _ in read_log(setup.log_path(0)).lines if e.kind == "push"]
        header = next(e.what for e in pushes if e.what[1:3] == (2, first))
        lost = Event("lost", float(cluster.now), header)
        leave = Event("leave", float(cluster.now), (2,))
        steps = [(0, leave), (1, lost), (1, leave)]
        if told == "loss at shard 1":
            steps = [(1, lost), (0, leave), (1, leave)]
        cluster.after_event = lambda cluster: None
        cluster.handle(*steps[0])
        shutil.copytree(live, dead)
        for step in steps[1:]:
            cluster.handle(*step)
        complete_membership(there)
        assert_recovered(cluster, there)
        *_, last, _ = read_log(there.log_path(1)).lines
        assert last.decided == [Dropped(header[0], "lost with its worker")]
        raise Killed

    setup = make_setup(TASK, RULE, tg.Async(), live, **SMALL)
    with pytest.raises(Killed):
        Cluster(setup, seed=5, after_event=look).run()


def test_changes_that_were_made_are_not_made_again():
    story = Story()
    for kind, worker in (("join", 3), ("leave", 0), ("leave", 1)):
        story.lines.append(Line(Event(kind, 0.0, (worker,)), []))
    add, another, remove, next_ = Change(5), Change(9), Change(7, remove=0), Change(8, remove=2)
    assert still_to_make([add, remove, next_, another], story) == [next_, another]
    assert still_to_make([add, remove], Story()) == [add, remove]


CHANGES = [Change(10), Change(25, remove=0)]
TIMES = tg.Gamma(workers=4, mean_s=0.02)


def run_with_changes(crew, folder, resume=False):
    return train(
        TASK,
        RULE,
        tg.Sync(),
        workers=3,
        shards=2,
        updates=60,
        checkpoints=tg.Checkpoints(folder, resume=resume),
        processes=tg.Processes(crew=crew, digest_every=10),
        scenario=tg.Scenario(impose=TIMES, changes=CHANGES),
    )


@pytest.fixture
def four(crew):
    """A crew that has the fourth worker at hand: starting one may take longer than a run."""
    workers = [crew.take("worker") for _ in range(4)]
    ray.get([worker.__ray_ready__.remote() for worker in workers])
    for worker in workers:
        crew.give_back(worker)
    return crew


def assert_members_came_and_went(run, folder):
    assert_replays(run, TASK, RULE, 60)
    assert_nothing_lost_or_twice(folder, 2, 60)
    assert run.schedule.member_worker.tolist() == [3, 0]
    assert run.schedule.member_joined.tolist() == [1, 0]


@pytest.mark.parametrize("kind", ["join", "leave"])
def test_a_run_killed_between_two_shards_of_a_change_is_resumed(kind, four, tmp_path):
    run_with_changes(four, tmp_path)
    for shard in range(2):
        path = tmp_path / f"shard-{shard}.log"
        lines = path.read_bytes().splitlines(keepends=True)
        at = next(i for i, line in enumerate(lines) if json.loads(line)[0] == kind)
        path.write_bytes(b"".join(lines[: at + 1 - shard]))
    record = tmp_path / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"finished": False}))
    run = run_with_changes(four, tmp_path, resume=True)
    assert_members_came_and_went(run, tmp_path)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_shard_that_dies_during_a_change_is_told_again(moment, four, tmp_path, monkeypatch):
    of_all, deaths = Driver._of_all, []

    def die(driver, tell):
        def told(shard):
            handle = driver.shards[shard].handle
            changing = "worker" in tell.__code__.co_freevars  # else it is told to hold
            if shard == 0 or not changing or tell in deaths:
                return tell(shard)
            deaths.append(tell)
            if moment == "after":
                ray.get(tell(shard))
            os.kill(driver.shards[shard].place.pid, signal.SIGKILL)
            return handle.hold.remote()

        of_all(driver, told)

    monkeypatch.setattr(Driver, "_of_all", die)
    run = run_with_changes(four, tmp_path)
    assert_members_came_and_went(run, tmp_path)
    assert len(deaths) == 2
