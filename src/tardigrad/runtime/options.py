"""What may be asked of a run on Ray beside what a simulated one is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tardigrad.clusters import TimedCluster
from tardigrad.core.checks import count, one_of, require
from tardigrad.protocol.coordinator import MembershipChange
from tardigrad.protocol.run_processes import Patience
from tardigrad.runtime.actor_pool import ActorPool
from tardigrad.runtime.faults import Fault
from tardigrad.runtime.placement import Placement


@dataclass(frozen=True)
class Processes(Placement):
    """A run's processes: where they are, what they take, what they share, what they write down."""

    address: str | None = None
    """HOST:PORT of a cluster to join. None: the Ray this process is connected to, or a local one
    started for this run."""
    pool: ActorPool | None = None
    """Actors to use, kept for the next run. None: new ones, for this run alone."""
    resources: Mapping[tuple[str, int], Mapping[str, float]] | None = None
    """Ray resources for ("worker", i) or ("shard", i), to bind them to nodes that have these."""
    threads: int = 1
    """Of each process; the bits of a gradient depend on it."""
    shared_memory: bool = True
    """Let those on one node share memory. False: everything travels through sockets."""
    digest_every: int = 100
    """Updates between digests of θ in the logs, which a replay compares; 0: at the end alone."""
    sync_log: bool = False
    """Make logs survive loss of power, at about 0.2 ms an update."""
    patience: Patience = field(default_factory=Patience)
    """How long processes may take before something is done about it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        count("threads", self.threads)
        count("digest_every", self.digest_every, least=0)
        for name in ("shared_memory", "sync_log"):
            value = getattr(self, name)
            require(isinstance(value, bool), f"{name} must be True or False, got {value!r}")
        for bound in self.resources or ():
            require(
                isinstance(bound, tuple) and len(bound) == 2,
                f'resources are of ("worker", i) or ("shard", i), got {bound!r}',
            )
            one_of("resources", bound[0], ("worker", "shard"))
            count("resources", bound[1], least=0)


@dataclass(frozen=True)
class Scenario:
    """What is made to happen to a run, to test how it copes."""

    impose: TimedCluster | None = None
    """A time model whose step times (drawn with the run's seed) the workers keep, by waiting after
    a gradient that was computed sooner."""
    faults: Sequence[Fault] = ()
    """Kills on schedule (`fail_at`), for tests."""
    changes: Sequence[MembershipChange] = ()
    """Workers to add or remove on the way. Give them to a resumed run too, which makes those that
    are still to be made."""

    def __post_init__(self) -> None:
        require(
            self.impose is None or isinstance(self.impose, TimedCluster),
            f"only step times can be imposed, such as those of Gamma(workers=4); got {self.impose}",
        )
        for name, kind, example in (
            ("faults", Fault, "fail_at(worker=0, step=3)"),
            ("changes", MembershipChange, "Change(at_update=10)"),
        ):
            given = getattr(self, name)
            require(
                not isinstance(given, kind) and all(isinstance(one, kind) for one in given),
                f"{name} is a list, such as [{example}], got {given!r}",
            )
            object.__setattr__(self, name, tuple(given))
