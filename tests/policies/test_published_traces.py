"""Time-optimal methods on a bowl with three constant speeds: known traces, by hand."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
import torch

import tardigrad as tg
from tardigrad.policies import Policy

STEP_S = (1.0, 2.3, 7.15)
RATE = 0.1


@dataclass(frozen=True)
class Constants(tg.TimedCluster):
    """Worker w takes STEP_S[w] for each step."""

    workers: int = len(STEP_S)

    def realise(self, seed: int) -> tg.StepTimes:
        return ConstantTimes()


class ConstantTimes(tg.StepTimes):
    def step_s(self, workers: npt.ArrayLike, steps: npt.ArrayLike) -> npt.NDArray[np.float64]:
        who, _ = np.broadcast_arrays(np.asarray(workers), np.asarray(steps))
        return np.array(STEP_S)[who]


Trace = list[tuple[float, float]]
ASYNC: Trace = [
    (1, 0.9),
    (2, 0.81),
    (2.3, 0.71),
    (3, 0.629),
    (4, 0.5661),
    (4.6, 0.4951),
    (5, 0.43849),
    (6, 0.394641),
    (6.9, 0.345131),
    (7, 0.305667),
]
SGD = tg.rules.sgd(RATE)
CASES: dict[str, tuple[tg.Rule, Policy, Trace]] = {
    "async": (SGD, tg.Async(), [*ASYNC, (7.15, 0.205667), (8, 0.1751)]),
    "delay-adaptive": (
        tg.rules.delay_adaptive(RATE, workers=3),
        tg.Async(),
        [*ASYNC, (7.15, 0.275667), (8, 0.2451)],
    ),
    "ringmaster": (SGD, tg.Ringmaster(4), [*ASYNC, (8, 0.2751), (9, 0.24759)]),
    # 1, 2, 2.3 and 3; that of 4.6 is dropped, so 4, 5, 6 and 6.9; that of 7 too: 8, 9, 9.2, 10.
    "rennala": (SGD, tg.Rennala(4), [(3, 0.9), (6.9, 0.81), (10, 0.729)]),
    # The third is never in time: interrupted at 3, it could be done at 10.15.
    "ringmaster, interrupts": (
        SGD,
        tg.Ringmaster(4, stop=True),
        [*ASYNC, (8, 0.2751), (9, 0.24759)],
    ),
    # 1, 2, 2.3 and 3, when all begin again.
    "rennala, interrupts": (SGD, tg.Rennala(4, stop=True), [(3, 0.9), (6, 0.81), (9, 0.729)]),
    # Two, then 0.5 s: the third is never in time, and begins again when it has come.
    "quorum": (SGD, tg.Quorum(2, grace_s=0.5), [(2.8, 0.9), (5.6, 0.81), (8.4, 0.729)]),
    # What it computed at 1 comes at 7.15, for the third: the mean of 0.81, 0.81 and 1.
    "quorum, late ones kept": (
        SGD,
        tg.Quorum(2, grace_s=0.5, late="next"),
        [(2.8, 0.9), (5.6, 0.81), (8.4, 0.81 - RATE * 2.62 / 3)],
    ),
}


def bowl() -> tg.FunctionTask:
    return tg.FunctionTask(torch.ones(1, dtype=torch.float64), lambda view, worker, step: view)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("bulk", [True, False], ids=["closed", "loop"])
def test_the_trace_is_the_known_one(name: str, bulk: bool) -> None:
    rule, policy, expected = CASES[name]
    schedule = tg.schedule(policy, Constants(), len(expected), bulk=bulk)
    assert schedule.group_time_s == pytest.approx([time_s for time_s, _ in expected])
    for updates, (_, x) in enumerate(expected, 1):
        made = tg.schedule(policy, Constants(), updates, bulk=bulk)
        assert tg.execute(made, bowl(), rule, engine="exact").params.item() == pytest.approx(
            x, abs=6e-7
        )


def test_what_ringmaster_drops_is_told_and_its_worker_goes_on() -> None:
    made = tg.schedule(tg.Ringmaster(4), Constants(), 30)
    assert made.reasons == ("delay at bound",)
    assert set(made.worker[made.drop_row]) == {2}
    # Released when it was dropped, with what there was then.
    second = np.flatnonzero((made.worker == 2) & (made.step == 1))
    assert made.start_s[second].tolist() == [7.15]
    assert made.read[second].tolist() == [[10]]


def test_who_is_interrupted_goes_on_at_once_with_what_there_is() -> None:
    made = tg.schedule(tg.Ringmaster(4, stop=True), Constants(), 30)
    assert made.reasons == ("interrupted",)
    assert set(made.worker[made.drop_row]) == {2}
    first, second = (np.flatnonzero((made.worker == 2) & (made.step == s))[0] for s in (0, 1))
    assert made.end_s[first] == made.start_s[second] == 3.0  # the fourth update
    assert made.read[second].tolist() == [4]


def test_fedbuffs_weights_on_groups_of_all_are_synchronous() -> None:
    """Nothing is late, so every weight is 1: to the bit."""
    fedbuff, plain = tg.rules.staleness_weighted(RATE), SGD
    grouped, rounds = tg.SoftSync(size=3), tg.Sync()
    ends = [
        tg.simulate(bowl(), rule, policy=policy, cluster=Constants(), updates=20).params
        for rule, policy in ((fedbuff, grouped), (plain, rounds))
    ]
    assert torch.equal(*ends)


def test_fedbuff_is_the_mean_of_weighted_gradients() -> None:
    """Groups of two that wait for nobody: at 1 and 2 from the first worker, then at 2.3 and 3."""
    rule = tg.rules.staleness_weighted(RATE)
    policy = tg.SoftSync(size=2, wait=False)
    x1 = 1 - RATE  # both at x = 1, at the first version
    x2 = x1 - RATE * (1 / 2**0.5 + x1) / 2  # the second worker's is one update late
    for updates, x in ((1, x1), (2, x2)):
        run = tg.simulate(bowl(), rule, policy=policy, cluster=Constants(), updates=updates)
        assert run.params.item() == pytest.approx(x, abs=1e-15)
