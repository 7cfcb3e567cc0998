"""Driving a stack of runs: as `drive` does one, every replica evaluated for itself."""

import time
from collections.abc import Sequence

from tardigrad.engine.drive import check_finite, check_splits, record_evaluation
from tardigrad.engine.fast.stack import Replica, Stack
from tardigrad.engine.options import Evaluation
from tardigrad.engine.run import Diverged, Run


def drive_together(stack: Stack, evaluation: Evaluation | int = 0) -> list[Run | Diverged]:
    """Execute to the end; for each replica its run, or how it diverged, as a single run would.

    The replicas that remain go on until none is left.
    """
    evaluation = Evaluation.of(evaluation)
    for replica in stack.replicas:
        check_splits(replica.task, evaluation)
    ended: dict[int, Run | Diverged] = {}
    started = time.perf_counter()
    while True:
        updates, last = stack.updates, stack.updates == stack.total
        for i, replica in enumerate(stack.replicas):
            if i in ended:
                continue
            try:
                _look_at(
                    replica,
                    evaluation.every > 0 and (last or updates % evaluation.every == 0),
                    evaluation.splits,
                    time.perf_counter() - started,
                )
            except Diverged as diverged:
                ended[i] = diverged
            else:
                if last:
                    ended[i] = replica.run()
        if len(ended) == len(stack.replicas):
            return [ended[i] for i in range(len(stack.replicas))]
        every = evaluation.every or stack.total
        stack.advance_to(min(stack.total, updates - updates % every + every))


def _look_at(replica: Replica, evaluates: bool, splits: Sequence[str], wall_s: float) -> None:
    if replica.diverged is not None:
        raise replica.diverged
    if replica.position:
        check_finite(replica)
    if evaluates:
        record_evaluation(replica, splits, wall_s)
