"""Which candidates are trained, and what is told where the budget ends before all were."""

import math
from dataclasses import dataclass

import pytest

from tardigrad.clusters import Constant
from tardigrad.planning import trained
from tardigrad.planning.advice import Plan, advise
from tardigrad.planning.answer import TargetResults
from tardigrad.planning.goal import Target
from tardigrad.planning.offers import Candidate
from tardigrad.planning.trial import KeptCurves, WallBudget
from tardigrad.policies import Backup, Sync
from tests.planning.drawn_curves import SPEC, DrawnTraining, Evaluations

AMPLE = WallBudget(math.inf)


@dataclass
class FastBackups(DrawnTraining):
    """All are slow, but for backups at a rate above the spec's."""

    def slowness_of(self, candidate: Candidate) -> float:
        fast = isinstance(candidate.policy, Backup) and candidate.factor > 2
        return (1.0 if fast else 3.0) + 0.01 * candidate.factor


@pytest.fixture
def control() -> Plan:
    return advise(Constant(workers=4), gradients=400)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[FastBackups]:
    """The trainings that a plan makes, the curves drawn."""
    made: list[FastBackups] = []

    def training_of(spec, setting, target, horizon_s, kept):  # type: ignore[no-untyped-def]
        made.append(FastBackups(spec, setting.cluster, target, 100.0, kept=kept))
        return made[-1]

    monkeypatch.setattr(trained, "training_of", training_of)
    return made


def answered(control: Plan, budget: WallBudget, sizes: tuple[int, ...] = ()) -> TargetResults:
    target, kept = Target("loss", 0.1), KeptCurves(None)
    return trained.trained_answer(SPEC, control, target, sizes, None, 2, budget, kept)


def test_a_policy_that_another_beats_in_all_times_may_win_by_its_rate(
    control: Plan, made: list[FastBackups]
) -> None:
    """Equal constant workers: a backup only drops work that would have come at the same time."""
    waiting, backed = (control.setting.measure(p).summary for p in (Sync(), Backup(1)))
    assert waiting.gradients_per_s > 1.2 * backed.gradients_per_s
    assert waiting.updates_per_s >= backed.updates_per_s
    winner = answered(control, AMPLE).winner.candidate
    assert isinstance(winner.policy, Backup)
    assert winner.factor > 2


def test_numbers_of_workers_that_the_budget_did_not_last_for_are_told(
    control: Plan, made: list[FastBackups]
) -> None:
    everything = answered(control, AMPLE, (2, 3, 4))
    assert [one.cluster.workers for one in everything.sizes] == [4, 3, 2]
    assert everything.untried == ()
    whole = len(made[0].evaluations)
    made.clear()

    class Shared(Evaluations):
        """Of all trainings together."""

        def __init__(self, most: int) -> None:
            WallBudget.__init__(self, math.inf)
            self.most = most

        @property
        def spent(self) -> bool:
            return sum(len(training.evaluations) for training in made) >= self.most

    found = answered(control, Shared(whole + 5), (2, 3, 4))
    assert [one.cluster.workers for one in found.sizes] == [4]
    assert found.untried == (3, 2)
    assert "The budget was spent before 2, 3 workers were tried." in found.why()
    assert "the budget was spent before 2, 3 workers were tried" in str(found.table())
    assert found.data()["untried_workers"] == [2, 3]
