"""What every run on Ray must satisfy, whatever happened to it."""

from collections import Counter

import torch

import tardigrad as tg
from tardigrad.runtime.log import read_log
from tardigrad.runtime.messages import Applied, Dropped, Push


def assert_replays(run, task, rule, updates):
    """It made the asked updates, and its schedule executes to the same bits."""
    assert run.schedule.updates == updates
    replayed = tg.execute(run.schedule, task, rule, engine="exact")
    assert torch.equal(replayed.params, run.params)
    assert replayed.history.loss == run.history.loss


def assert_nothing_lost_or_twice(folder, shards, updates):
    """From the logs: every gradient that came is applied once, dropped once, or waits at the end;
    and every shard got every one, but for those the workers were just pushing at the end."""
    came = []
    for shard in range(shards):
        pushed, applied, dropped = Counter(), Counter(), Counter()
        versions = 0
        for line in read_log(folder / f"shard-{shard}.log").lines:
            if line.event.kind == "push":
                pushed[Push(*line.event.what).row] += 1
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
    return came
