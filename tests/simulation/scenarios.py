"""A seed is a scenario: what runs, on what, and what goes wrong when."""

import random
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple

import torch

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Sharding
from tardigrad.links import Link
from tardigrad.policies import Policy
from tardigrad.protocol.coordinator import Coordinator, MembershipChange
from tardigrad.recording.setup import RunSetup
from tardigrad.tasks import Gradient, Turn
from tardigrad.work import OneGradient
from tests.simulation.checks import check
from tests.simulation.faults import Fault, Faults, draw_faults
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.simulated_disk import SharedDisk
from tests.simulation.simulated_network import Network, Weather
from tests.simulation.simulated_time import SimulatedTime
from tests.work.heavy_ball import HeavyBall

LIMIT_S = 8000.0
"""Of simulated time. A lost call costs 45 s: where one in a hundred is lost, and a third of all
messages, the slowest of 20,000 runs took 4,096 s."""
SIZE = 6

POLICIES: dict[str, Callable[[int], Policy]] = {
    "async": lambda workers: tg.Async(),
    "no_waiting": lambda workers: tg.Async(wait=False),
    "sync": lambda workers: tg.Sync(),
    "backup": lambda workers: tg.Backup(1) if workers > 1 else tg.Sync(),
    "soft_sync": lambda workers: tg.SoftSync(min(2, workers)),
    "stale_synchronous": lambda workers: tg.StaleSynchronous(1),
    "deadline": lambda workers: tg.Deadline(0.15),
    "bounded_delay": lambda workers: tg.BoundedDelay(2),
    "ringmaster": lambda workers: tg.Ringmaster(2),
    "rennala": lambda workers: tg.Rennala(3),
    "ringmaster_stop": lambda workers: tg.Ringmaster(2, stop=True),
    "rennala_stop": lambda workers: tg.Rennala(3, stop=True),
    "quorum": lambda workers: tg.Quorum(max(1, workers - 1), grace_s=0.05),
    "quorum_next": lambda workers: tg.Quorum(max(1, workers // 2), grace_s=0.05, late="next"),
    "quorum_measured": lambda workers: tg.Quorum(
        workers // 2 + 1, weights="samples", grace_deviations=3.0
    ),
    "malenia": lambda workers: tg.Malenia(2 * workers),
    "malenia_stop": lambda workers: tg.Malenia(2 * workers, stop=True),
    "dylu_quorum": lambda workers: tg.DyLU(
        tg.Quorum(workers // 2 + 1, weights="samples", grace_deviations=3.0)
    ),
    "fedbuff": lambda workers: tg.SoftSync(size=3, wait=False),
    "partial": lambda workers: tg.Partial(
        push=max(1, workers - 1), pull=0.5, push_timeout_s=0.3, pull_timeout_s=0.3
    ),
    "partial_pull": lambda workers: tg.PartialPull(tg.Async(), pull=0.5, pull_timeout_s=0.3),
    "partial_pull_sync": lambda workers: tg.PartialPull(tg.Sync(), pull=0.5, pull_timeout_s=0.3),
    "ramp_up": lambda workers: tg.RampUp(tg.Async(), updates=10),
    "ramp_up_sync": lambda workers: tg.RampUp(tg.Sync(), updates=6),
}
ASYNCHRONOUS = [
    name for name, make in POLICIES.items() if make(2).asynchronous and not make(2).interrupts
]
RULES: dict[str, Callable[[], rules.Rule]] = {
    "sgd": lambda: rules.sgd(lr=0.05),
    "gap_aware": lambda: rules.gap_aware(lr=0.05),
    "dana": lambda: rules.dana(lr=0.02),
    "adam": lambda: rules.adam(lr=0.01),
    "fasgd": lambda: rules.fasgd(lr=0.01),
    "delayed_nesterov": lambda: rules.delayed_nesterov(lr=0.05, every=3),
    "schedule_free": lambda: rules.schedule_free(lr=0.1),
    "staleness_weighted": lambda: rules.staleness_weighted(lr=0.05),
}
LINKS: dict[str, Link] = {
    "every": tg.Every(push=3, pull=2),
    "every_pull": tg.Every(pull=3),
    "bandwidth_reapply": tg.BandwidthAware(c_push=0.5, c_pull=0.5),
    "bandwidth_average": tg.BandwidthAware(c_push=0.5, c_pull=0.5, on_drop="average"),
    "budget": tg.Budget(bytes_per_update=30.0, direction="both"),
}
CODECS: dict[str, tg.Codec] = {
    "top_k": tg.TopK(0.4),
    "top_k_forgets": tg.TopK(0.4, error_feedback=False),
    "random_k": tg.RandomK(0.4),
    "sign": tg.Sign(),
    "int8": tg.Int8(block=2),
}


WORKS: dict[str, Callable[[], tg.Work[Any]]] = {
    "heavy_ball": HeavyBall,
    "local_momentum": lambda: tg.LocalSteps(2, rules.sgd(0.05, momentum=0.9)),
    "local_adamw": lambda: tg.LocalSteps(3, rules.adamw(0.01)),
}


@dataclass
class Scenario:
    seed: int
    policy: str = "async"
    rule: str = "sgd"
    workers: int = 2
    shards: int = 2
    updates: int = 12
    cut_every: int = 0
    snapshot_every: int = 0
    sync_log: bool = True
    late_files: bool = False
    hosts: int = 3
    mean_step_s: float = 0.1
    not_finite: bool = False
    """Whether gradients are NaN now and then."""
    weather: Weather = field(default_factory=Weather)
    faults: list[Fault] = field(default_factory=list)
    changes: list[MembershipChange] = field(default_factory=list)
    link: str = "full"
    work: str = "gradient"
    dylu: bool = False
    """Whether workers' steps follow their speed."""
    codec: str = "identity"
    ends_early_at: int | None = None
    """The version at which whoever started it has seen enough."""
    more_updates: int = 0
    """By how many the finished run is then made longer,"""
    later_faults: list[Fault] = field(default_factory=list)
    """and what goes wrong from then on."""


@dataclass
class Outcome:
    """`error`: a bug."""

    scenario: Scenario
    cluster: SimulatedCluster
    error: str = ""
    trace: str = ""
    happened: Counter[str] = field(default_factory=Counter)
    """Faults that came about, by kind."""

    @property
    def story(self) -> list[str]:
        return self.cluster.time.story


class Fixed(NamedTuple):
    """What is the same in all scenarios, and not drawn."""

    policy: str | None = None
    work: str | None = None
    codec: str | None = None
    rule: str | None = None


DRAWN = Fixed()


def draw(seed: int, fixed: Fixed = DRAWN) -> Scenario:
    """Everything from the seed, but for what is fixed."""
    policy = fixed.policy
    r = random.Random(f"scenario {seed}")
    workers, shards = r.randint(1, 5), r.randint(1, 3)
    updates = r.choice([r.randint(6, 20), r.randint(6, 20), r.randint(6, 20), r.randint(20, 60)])
    sync_log = r.random() < 0.5
    weather = Weather(
        delay_s=r.choice([0.001, 0.01, 0.1]),
        jitter=r.choice([0.0, 1.0, 3.0]),
        lost=r.choice([0.0, 0.0, 0.05, 0.3]),
        repeated=r.choice([0.0, 0.1]),
        call_lost=r.choice([0.0, 0.0, 0.0, 0.01]),
    )
    drawn_policy, drawn_rule = r.choice(list(POLICIES)), r.choice(list(RULES))
    scenario = Scenario(
        seed,
        policy=policy or drawn_policy,
        rule=fixed.rule or drawn_rule,
        workers=workers,
        shards=shards,
        updates=updates,
        cut_every=r.choice([0, 0, 3, 7]),
        snapshot_every=r.choice([0, 2, 5]),
        sync_log=sync_log,
        late_files=sync_log and r.random() < 0.5,
        hosts=r.randint(1, 4),
        mean_step_s=r.choice([0.02, 0.1, 0.1, 1.0]),
        not_finite=r.random() < 0.2,
        weather=weather,
        faults=draw_faults(r, updates, workers, shards),
        changes=_draw_changes(r, updates, workers),
    )
    scenario = with_a_lost_change(scenario, random.Random(f"lost change {seed}"))
    if POLICIES[scenario.policy](workers).needs_all:
        # It gathers without end while a worker is away, and all of that is computed again.
        scenario = replace(scenario, mean_step_s=1.0)
    if POLICIES[scenario.policy](workers).gives_weights and scenario.rule == "dana":
        scenario = replace(scenario, rule="adam")  # DANA takes none
    if r.random() >= 0.75:
        linked = with_link(scenario, r.choice(list(LINKS)))
        goes = policy in (None, linked.policy) and fixed[1:] == DRAWN[1:]
        scenario = linked if goes else scenario
    scenario = with_work(scenario, random.Random(f"work {seed}"), fixed.work)
    scenario = with_codec(scenario, random.Random(f"codec {seed}"), fixed.codec)
    if r.random() >= 0.25 or not (shards == 1 or POLICIES[scenario.policy](workers).extends):
        return scenario
    return extended(scenario, r)


def extended(scenario: Scenario, r: random.Random) -> Scenario:
    """The same, made longer when it has finished, or when it was ended before."""
    more = r.randint(1, 20)
    return replace(
        scenario,
        ends_early_at=r.randint(1, scenario.updates) if r.random() < 0.3 else None,
        more_updates=more,
        later_faults=draw_faults(r, more, scenario.workers, scenario.shards),
    )


def with_a_lost_change(scenario: Scenario, r: random.Random) -> Scenario:
    """Where logs are not synced, in a part of them the same with power that is lost when some
    shards have been told of who leaves or comes."""
    if scenario.sync_log or r.random() >= 0.3:
        return scenario
    told = f"has done {r.choice(('LeaveWorker', 'LeaveWorker', 'JoinWorker'))}"
    delay_s = r.choice([0.0, 0.0, r.uniform(0.0, 0.2)])
    nth = r.randint(1, scenario.shards)
    lost = Fault("power", told, nth, r.choice(["it", "shard"]), delay_s, seconds=5.0)
    changes = scenario.changes or [MembershipChange(r.randint(0, scenario.updates - 1), remove=0)]
    return replace(scenario, changes=changes, faults=[*scenario.faults, lost])


def with_link(scenario: Scenario, name: str) -> Scenario:
    """The same with a link, and with a rule and a policy that go with it."""
    link, policy, rule = LINKS[name], scenario.policy, scenario.rule
    averages = link.withholds_pushes and link.on_drop == "average"
    drawn = POLICIES[policy](scenario.workers)
    if drawn.interrupts or (averages and not drawn.asynchronous):
        policy = ASYNCHRONOUS[scenario.seed % len(ASYNCHRONOUS)]
    if link.reads_deviation:
        rule = "fasgd"
    return replace(scenario, link=name, policy=policy, rule=rule)


def with_work(scenario: Scenario, r: random.Random, fixed: str | None) -> Scenario:
    """In a part of them the same with workers that keep a state for themselves."""
    if r.random() >= 0.3 and fixed is None:
        return scenario
    link = LINKS.get(scenario.link, tg.Full())
    averages = link.withholds_pushes and link.on_drop == "average"
    work = "heavy_ball" if averages else r.choice(list(WORKS))
    return replace(scenario, work=fixed or work, dylu=not averages and r.random() < 0.5)


def with_codec(scenario: Scenario, r: random.Random, fixed: str | None) -> Scenario:
    """In a part of them the same with pushes in another form."""
    budgets_pushes = scenario.link == "budget"  # by the bytes of whole slices
    if budgets_pushes or (r.random() >= 0.3 and fixed is None):
        return scenario
    return replace(scenario, codec=fixed or r.choice(list(CODECS)))


def make_link(scenario: Scenario) -> Link:
    link = LINKS.get(scenario.link, tg.Full())
    codec = CODECS.get(scenario.codec, tg.Identity())
    made: Link = replace(link, codec=codec)  # type: ignore[type-var]
    return made


def _draw_changes(r: random.Random, updates: int, workers: int) -> list[MembershipChange]:
    changes = []
    if r.random() < 0.35:
        changes.append(MembershipChange(r.randint(0, updates - 1)))
        for leaving in range(min(2, workers)):
            if r.random() < 0.4:
                changes.append(MembershipChange(r.randint(0, updates - 1), remove=leaving))
    return changes


class Bowl(tg.FunctionTask):
    """With noise that depends on the row, so that no two gradients are the same."""

    def __init__(self, not_finite: bool) -> None:
        super().__init__(torch.ones(SIZE, dtype=torch.float64), lambda view, worker, step: view)
        self._not_finite = not_finite
        self._slopes = torch.linspace(0.5, 2.0, SIZE, dtype=torch.float64)
        self._places = torch.arange(SIZE, dtype=torch.float64)
        self._loss = torch.zeros((), dtype=torch.float64)

    def gradient(self, params: torch.Tensor, turn: Turn) -> Gradient:
        """Without the random numbers that tasks may draw, which take longer than all the rest."""
        if self._not_finite and (5 * turn.step + turn.worker) % 7 == 3:
            return Gradient(self._loss, torch.full_like(params, torch.nan), ())
        noise = torch.sin(self._places * (1 + turn.worker) + turn.step)
        return Gradient(self._loss, self._slopes * params + 0.1 * noise, ())


@cache
def make_task(not_finite: bool) -> Bowl:
    return Bowl(not_finite)


@cache
def make_rule(name: str) -> rules.Rule:
    """Once, because a rule is traced where it is first used."""
    return RULES[name]()


@cache
def make_work(name: str) -> tg.Work[Any]:
    """Once, because its inner rule is traced where it is first used."""
    return WORKS[name]() if name in WORKS else OneGradient()


def make_cluster(scenario: Scenario) -> SimulatedCluster:
    time = SimulatedTime(scenario.seed)
    task = make_task(scenario.not_finite)
    policy = POLICIES[scenario.policy](scenario.workers)
    setup = RunSetup(
        task,
        make_rule(scenario.rule),
        tg.DyLU(policy, rows=2) if scenario.dylu else policy,
        Sharding.divide(task.layout, scenario.shards),
        scenario.workers,
        scenario.updates,
        snapshot_every=scenario.snapshot_every,
        digest_every=3,
        sync_log=scenario.sync_log,
        link=make_link(scenario),
        seed=scenario.seed,
        work=make_work(scenario.work),
    )
    disk = SharedDisk(time, scenario.late_files)
    network = Network(time, scenario.weather)
    return SimulatedCluster(setup, time, network, disk, scenario.hosts, scenario.mean_step_s)


def make_coordinator(scenario: Scenario, updates: int) -> Coordinator:
    return Coordinator(
        scenario.shards,
        scenario.workers,
        updates,
        scenario.cut_every,
        scenario.changes,
        keeps_unsent=True,
        keeps_state=True,
    )


def run(scenario: Scenario) -> Outcome:
    """What came of it."""
    cluster = make_cluster(scenario)
    faults = Faults(cluster, lambda: make_coordinator(scenario, cluster.setup.updates))
    for fault in scenario.faults:
        faults.plan(fault)
    outcome = Outcome(scenario, cluster, happened=faults.happened)
    try:
        if scenario.ends_early_at is not None:
            nth = scenario.ends_early_at + 1
            cluster.moments.plan("version", nth, lambda process: cluster.end_early())
        live(cluster, faults.make)
        ended = None
        if scenario.more_updates:
            ended = cluster.finished()
            cluster.extend(scenario.updates + scenario.more_updates)
            for fault in scenario.later_faults:
                faults.plan(fault)
            live(cluster, faults.make)
        check(cluster, ended)
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"
        outcome.trace = "".join(traceback.format_exception(error)[-6:])
    return outcome


def live(cluster: SimulatedCluster, make: Callable[[], Coordinator]) -> None:
    """Until a driver has finished the run. Whoever started it resumes it when it has ended without
    a result."""

    def user() -> None:
        if not any(driver.alive for driver in cluster.drivers):
            cluster.start_driver(make)
        cluster.time.after(cluster.time.random.uniform(1.0, 60.0), user)

    user()
    limit_s = cluster.time.now_s + LIMIT_S
    cluster.time.run(lambda: cluster.finished() is not None, limit_s)
