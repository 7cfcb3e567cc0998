"""What every run on Ray must satisfy, whatever happened to it."""

from collections import Counter, defaultdict

import torch

import tardigrad as tg
from tardigrad.runtime.log import read_log
from tardigrad.runtime.messages import Applied, Dropped, PushHeader


def assert_replays(run, task, rule, updates):
    """It made the asked updates, and its schedule executes to the same bits."""
    assert run.schedule.updates == updates
    replayed = tg.execute(run.schedule, task, rule, engine="exact")
    assert torch.equal(replayed.params, run.params)
    assert replayed.history.loss == run.history.loss


def assert_nothing_lost_or_twice(folder, shards, updates):
    """From the logs: every gradient that came is applied once, dropped once, or waits at the end;
    and of every worker a shard got all up to its last one. The rows that came to each shard: what
    workers push after a shard's last version it does not log."""
    came, steps = [], []
    for shard in range(shards):
        pushed, applied, dropped = Counter(), Counter(), Counter()
        versions, of_worker = 0, defaultdict(set)
        for line in read_log(folder / f"shard-{shard}.log").lines:
            if line.event.kind == "push":
                push = PushHeader(*line.event.what)
                pushed[push.row] += 1
                of_worker[push.worker].add(push.step)
            for decided in line.decided:
                if isinstance(decided, Applied):
                    applied.update(decided.rows)
                    versions += 1
                elif isinstance(decided, Dropped):
                    dropped[decided.row] += 1
        assert versions == updates
        assert set(pushed.values()) == {1}
        assert all(count == 1 for count in (applied + dropped).values())
        assert set(applied) | set(dropped) <= set(pushed)
        came.append(set(pushed))
        steps.append(of_worker)
    for worker in set().union(*steps):
        everywhere = set().union(*(mine[worker] for mine in steps))
        for mine in steps:
            assert mine[worker] == {s for s in everywhere if s <= max(mine[worker], default=-1)}
    return came
