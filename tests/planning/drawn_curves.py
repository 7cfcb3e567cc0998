"""Trials whose curves are drawn by a formula: races without tensors."""

import math
from dataclasses import dataclass, field

import numpy as np

from tardigrad.clusters import Constant
from tardigrad.engine import Diverged
from tardigrad.experiment import Spec
from tardigrad.planning.goal import Target
from tardigrad.planning.measure import Setting
from tardigrad.planning.offers import Candidate
from tardigrad.planning.trial import CurvePoint, Training, Trial, WallBudget
from tardigrad.policies import Async

CLUSTER = Constant(workers=4)
SPEC = Spec.of(
    {
        "updates": 100,
        "task": "logistic_regression",
        "rule": {"name": "sgd", "lr": 0.1},
        "cluster": {"name": "constant", "workers": 4},
    }
)


@dataclass
class DrawnTraining(Training):
    """`slowness` of each candidate by its factor: its loss is exp(−t / (slowness · noise)) + its
    floor, the noise being the seed's, common to all, and the candidate's own. A candidate's loss
    begins to fall after its `wait`; `luck` multiplies its slowness with one seed; with one of
    `breaks` it diverges."""

    slowness: dict[float, float] = field(default_factory=dict)
    floor: dict[float, float] = field(default_factory=dict)
    wait: dict[float, float] = field(default_factory=dict)
    luck: dict[tuple[float, int], float] = field(default_factory=dict)
    breaks: set[tuple[float, int]] = field(default_factory=set)
    own_noise: float = 0.02
    evaluations: list[tuple[float, int, float]] = field(default_factory=list)

    def slowness_of(self, candidate: Candidate) -> float:
        return self.slowness[candidate.factor]

    def trial(self, candidate: Candidate, seed: int) -> Trial:
        return DrawnTrial(self, candidate, seed)


@dataclass(eq=False)
class DrawnTrial(Trial):
    def evaluated(self, at_s: float) -> CurvePoint:
        training, which = self.training, self.candidate.factor
        assert isinstance(training, DrawnTraining)
        training.evaluations.append((which, self.seed, at_s))
        slowness = training.slowness_of(self.candidate)
        if math.isinf(slowness) or (which, self.seed) in training.breaks:
            raise Diverged(1, 0, math.nan)
        drawn = np.random.default_rng([self.seed, round(1000 * which)])
        shared = np.random.default_rng(self.seed).uniform(0.5, 2.0) if self.seed else 1.0
        scale = slowness * shared * (1 + training.own_noise * drawn.normal())
        scale *= training.luck.get((which, self.seed), 1.0)
        falling_s = max(0.0, at_s - training.wait.get(which, 0.0))
        floor = training.floor.get(which, 0.0)
        return CurvePoint(at_s, math.exp(-falling_s / scale) + floor, 1, 0.0, 8)


class Evaluations(WallBudget):
    """A budget of so many evaluations, so that a test knows where it ends."""

    def __init__(self, training: DrawnTraining, most: int) -> None:
        super().__init__(math.inf)
        self._training, self._most = training, most

    @property
    def spent(self) -> bool:
        return len(self._training.evaluations) >= self._most


def drawn(slowness: dict[float, float], **more: object) -> tuple[DrawnTraining, list[Candidate]]:
    """A training to loss 0.1, and a candidate for each slowness."""
    training = DrawnTraining(SPEC, CLUSTER, Target("loss", 0.1), 100.0, slowness=slowness)
    for name, value in more.items():
        setattr(training, name, value)
    measured = Setting(CLUSTER, gradients=100).measure(Async())
    rule = {"name": "sgd", "lr": 0.1}
    return training, [Candidate(measured, {**rule, "lr": f}, f, 4) for f in slowness]
