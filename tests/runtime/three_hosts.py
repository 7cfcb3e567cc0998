"""A run on a cluster of three hosts, by a driver on the first of them."""

import sys
from pathlib import Path

import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.policies import Policy
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_replays

WORKERS, SHARDS = 4, 2
MEAN_S = 0.5
POLICIES: dict[str, Policy] = {"sync": tg.Sync(), "async": tg.Async()}


def main(folder: Path, address: str, policy: str, updates: int, sync_log: bool) -> None:
    torch.set_num_threads(1)
    task, rule = TASKS["logistic_regression"](), rules.RULES["dana_ga"](lr=0.02)
    run = tg.train(
        task,
        rule,
        POLICIES[policy],
        WORKERS,
        SHARDS,
        updates,
        checkpoints=tg.Checkpoints(folder, every=20),
        processes=tg.Processes(address, digest_every=10, sync_log=sync_log),
        scenario=tg.Scenario(impose=tg.Gamma(workers=WORKERS, mean_s=MEAN_S)),
        say=lambda line: print(line, flush=True),
    )
    assert_replays(run, task, rule, updates)
    print("replays bit for bit")


if __name__ == "__main__":
    folder, address, policy, updates, log = sys.argv[1:]
    main(Path(folder), address, policy, int(updates), sync_log=log == "sync_log")
