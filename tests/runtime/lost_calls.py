"""A run on a Ray of its own, to be started in an environment in which Ray loses calls."""

import sys
from pathlib import Path
from typing import Any

import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.protocol.calls import Process
from tardigrad.runtime import driver
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

UPDATES = 160


def count_lost_calls() -> list[Process]:
    """Those of whom Ray says so, to the driver that asks."""
    lost: list[Process] = []
    settled = driver.Driver.settled

    def count(process: Process, reference: Any) -> Any:
        outcome = settled(process, reference)
        if isinstance(outcome, driver.OutOfReach):
            lost.append(process)
        return outcome

    driver.Driver.settled = staticmethod(count)  # type: ignore[method-assign]
    return lost


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    task, rule = TASKS["logistic_regression"](), rules.RULES["dana_ga"](lr=0.02)
    lost = count_lost_calls()
    run = tg.train(
        task,
        rule,
        tg.Sync(),
        workers=3,
        shards=2,
        updates=UPDATES,
        checkpoints=tg.Checkpoints(folder, every=15),
        processes=tg.Processes(digest_every=10),
        scenario=tg.Scenario(impose=tg.Gamma(workers=3, mean_s=0.05)),
        say=lambda line: print(line, flush=True),
    )
    assert_replays(run, task, rule, UPDATES)
    assert_nothing_lost_or_twice(folder, 2, UPDATES)
    print(f"{len(lost)} calls were lost, and it replays bit for bit")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
