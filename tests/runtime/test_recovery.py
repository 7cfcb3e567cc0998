"""Control, log, merge and recovery together, without Ray: every order a network may produce."""

import os
import shutil

import pytest
import torch
from in_process import Cluster, make_setup, same_state

import tardigrad as tg
from tardigrad import rules
from tardigrad.engine.checkpoint import save_checkpoint
from tardigrad.runtime.cut import begin_cut, cut_file, finish_cut
from tardigrad.runtime.log import read_log
from tardigrad.runtime.merge import merge
from tardigrad.runtime.messages import Event
from tardigrad.runtime.recovery import Recovered
from tardigrad.scheduling import validate
from tardigrad.tasks import TASKS

TASK = TASKS["logistic_regression"](features=7, classes=3, train_size=100, validation=0)
POLICIES = {
    "async": tg.Async(),
    "async_no_wait": tg.Async(wait=False),
    "sync": tg.Sync(),
    "backup": tg.Backup(backups=1),
    "partial": tg.Partial(push=2, push_timeout_s=0.5),
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
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_what_the_logs_tell_executes_to_the_same_bits(policy, seed, tmp_path):
    setup = make_setup(TASK, RULES["dana_ga"], POLICIES[policy], tmp_path)
    cluster = Cluster(setup, seed)
    cluster.run()
    merged = merge([read_log(setup.log_path(s)) for s in range(2)], workers=3)
    schedule = merged.schedule
    validate(schedule)
    assert schedule.updates == 40
    replayed = tg.execute(schedule, TASK, setup.rule, engine="exact")
    params = torch.cat([server.shard.theta for server in cluster.servers])
    assert torch.equal(replayed.params, params)
    assert replayed.history.loss == merged.losses


@pytest.mark.parametrize("policy", POLICIES)
def test_a_shard_recovered_at_any_moment_is_the_one_that_was_lost(policy, tmp_path):
    live, dead = tmp_path / "live", tmp_path / "dead"
    live.mkdir()
    setup = make_setup(TASK, RULES["gap_aware"], POLICIES[policy], live, updates=20)
    looks = 0

    def look(cluster):
        nonlocal looks
        if sum(cluster.events) % 5 == 0:
            shutil.rmtree(dead, ignore_errors=True)
            shutil.copytree(live, dead)
            recovered = Recovered(make_setup(TASK, setup.rule, setup.policy, dead, updates=20))
            for shard, server in enumerate(cluster.servers):
                assert recovered.reached_end(shard)
                assert same_state(server, recovered.servers[shard])
                assert server.control.releases == recovered.servers[shard].control.releases
            looks += 1

    Cluster(setup, seed=3, after_event=look).run()
    assert looks > 3


def test_recovery_from_a_cut_equals_recovery_from_the_beginning(tmp_path):
    """With pushes waiting in a group; no gradient may be with one shard only, as cuts ensure."""
    setup = make_setup(TASK, RULES["fasgd"], tg.SoftSync(groups=1, wait=False), tmp_path)
    waiting = []

    def look(cluster):
        received = [server.control.received for server in cluster.servers]
        pending = len(cluster.servers[0].pending)
        if not waiting and sum(cluster.events) > 60 and received[0] == received[1] and pending:
            waiting.append(pending)
            begin_cut(tmp_path, 0)
            for shard, server in enumerate(cluster.servers):
                facts = {**server.facts(), "events": cluster.events[shard]}
                save_checkpoint(cut_file(tmp_path, 0, shard), server.tensors(), facts)
            finish_cut(tmp_path, 0, cluster.events)

    cluster = Cluster(setup, seed=1, after_event=look)
    cluster.run()
    assert waiting
    for server, recovered in zip(cluster.servers, Recovered(setup).servers, strict=True):
        assert same_state(server, recovered)


def test_a_gradient_that_waits_while_its_worker_leaves_leaves_no_rows(tmp_path):
    """The shards, what is recovered from a cut just after, and the replay are the same bits."""
    setup = make_setup(TASK, RULES["dana_ga"], tg.SoftSync(groups=1, wait=False), tmp_path)
    left = []

    def look(cluster):
        waits = all(any(p.worker == 2 for p in s.control.rows.values()) for s in cluster.servers)
        received = [server.control.received for server in cluster.servers]
        if not left and sum(cluster.events) > 40 and waits and received[0] == received[1]:
            left.append(2)
            for shard in range(2):
                cluster.handle(shard, Event("leave", float(cluster.now), (2,)))
            cluster.workers[2].begun = None
            for channel in [key for key in cluster.channels if key[1] == 2]:
                del cluster.channels[channel]
            begin_cut(tmp_path, 0)
            for shard, server in enumerate(cluster.servers):
                facts = {**server.facts(), "events": cluster.events[shard]}
                save_checkpoint(cut_file(tmp_path, 0, shard), server.tensors(), facts)
            finish_cut(tmp_path, 0, cluster.events)

    cluster = Cluster(setup, seed=1, after_event=look)
    cluster.run()
    assert left
    for server, recovered in zip(cluster.servers, Recovered(setup).servers, strict=True):
        assert same_state(server, recovered)
        owns, state = server.shard.owns, server.shard.state.optimizer
        assert sorted(owns) == [0, 1]
        total = sum(own.optimizer.velocity for own in owns.values())
        assert torch.allclose(state.velocity_sum, total, rtol=0, atol=1e-5)
    schedule = merge([read_log(setup.log_path(s)) for s in range(2)], workers=3).schedule
    replayed = tg.execute(schedule, TASK, setup.rule, engine="exact")
    params = torch.cat([server.shard.theta for server in cluster.servers])
    assert torch.equal(replayed.params, params)


def test_a_broken_last_line_is_as_if_it_had_not_happened(tmp_path):
    setup = make_setup(TASK, RULES["fasgd"], tg.Async(), tmp_path, shards=1)
    Cluster(setup).run()
    path = setup.log_path(0)
    whole = read_log(path)
    os.truncate(path, path.stat().st_size - 5)
    broken = read_log(path)
    assert broken.lines == whole.lines[:-1]
    assert broken.size < path.stat().st_size
    assert Recovered(setup).servers[0].shard.version == 39


def test_a_damaged_log_is_refused_with_its_place(tmp_path):
    setup = make_setup(TASK, RULES["fasgd"], tg.Async(), tmp_path, shards=1)
    Cluster(setup).run()
    path = setup.log_path(0)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], b'["push",1\n', *lines[4:]]))
    with pytest.raises(ValueError, match="line 4 is damaged"):
        read_log(path)


def test_a_log_of_another_policy_is_refused(tmp_path):
    setup = make_setup(TASK, RULES["fasgd"], tg.Async(), tmp_path, shards=1)
    Cluster(setup).run()
    other = make_setup(TASK, RULES["fasgd"], tg.Sync(), tmp_path, shards=1)
    with pytest.raises(ValueError, match="the log is of another policy"):
        Recovered(other)


def test_a_log_executed_to_other_bits_is_told_by_its_version(tmp_path):
    setup = make_setup(TASK, RULES["fasgd"], tg.Async(), tmp_path, shards=1)

    def look(cluster):
        server = cluster.servers[0]
        if server.shard.version == 7:
            cluster.logs[0].digest(7, "0123456789abcdef", 0.0)

    Cluster(setup, after_event=look).run()
    with pytest.raises(ValueError, match=r"shard 0, version 7: .* the log says 0123456789abcdef"):
        Recovered(setup)
