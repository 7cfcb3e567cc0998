"""What may be asked of a run beside what it trains: the same words, simulated or real."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from tardigrad.core.checks import count, one_of, positive, require
from tardigrad.tasks import SPLITS

MEASURES = ("gap", "b_staleness")


@dataclass(frozen=True)
class Evaluation:
    """What is measured on the way, and when."""

    every: int = 0
    """Updates between evaluations; there is one at the start and one at the end too. 0: never."""
    splits: Sequence[str] = ("validation",)
    """What is evaluated: of "train", "validation" and "test"; () records the mean batch loss
    alone."""
    measures: Sequence[str] = ()
    """What is recorded of every gradient applied at shard 0: "gap" (the distance of its view from
    θ) and "b_staleness" (how much the gradient itself has changed since, at the price of computing
    it twice). In simulated runs only."""

    def __post_init__(self) -> None:
        count("evaluation: every", self.every, least=0)
        for field, known in (("splits", SPLITS), ("measures", MEASURES)):
            names = getattr(self, field)
            require(not isinstance(names, str), f'{field} is a list of names, such as ["{names}"]')
            for name in names:
                one_of(field, name, known)
            object.__setattr__(self, field, tuple(names))

    @staticmethod
    def of(asked: Union["Evaluation", int]) -> "Evaluation":
        """A number alone is how often."""
        return asked if isinstance(asked, Evaluation) else Evaluation(asked)


@dataclass(frozen=True)
class Checkpoints:
    """Where a run is saved, how often, and whether to go on from what is there."""

    folder: str | Path | None = None
    """Where everything goes; made where there is none. On a cluster it is one that all nodes see.
    None: nothing is kept."""
    every: int = 0
    """Updates between checkpoints. 0: a simulated run saves its end alone; a run on Ray saves none,
    so that a lost shard is recovered from its whole log."""
    resume: bool = False
    """Go on with the run in the folder. A simulated one starts where there is no checkpoint yet."""

    def __post_init__(self) -> None:
        require(
            self.folder is None or isinstance(self.folder, str | Path),
            f"checkpoints: folder must be a path, got {self.folder!r}",
        )
        count("checkpoints: every", self.every, least=0)
        require(
            isinstance(self.resume, bool),
            f"checkpoints: resume must be True or False, got {self.resume!r}",
        )
        require(
            self.folder is not None or not self.resume,
            "resume needs the folder of the run to go on with: "
            'Checkpoints(folder="runs/mine", resume=True)',
        )


@dataclass(frozen=True)
class Limits:
    """What a simulated run may take of the machine; refused before it starts if it takes more."""

    chunk: int | None = None
    """Gradients that the fast engine computes at a time. None: what the checkpoint to go on from
    was made with, or else what suits the machine."""
    memory_gib: float | None = None
    """What the run may take. None: what the machine has left."""

    def __post_init__(self) -> None:
        if self.chunk is not None:
            count("chunk", self.chunk)
        if self.memory_gib is not None:
            positive("memory_gib", self.memory_gib)
