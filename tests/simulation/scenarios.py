"""A seed is a scenario: what runs, on what, and what goes wrong when."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from simulated_cluster import Network, SimulatedCluster, SimulatedDriver, Weather
from simulated_disk import SharedDisk
from simulated_time import SimulatedTime

import tardigrad as tg
from tardigrad import rules
from tardigrad.core.layout import Sharding
from tardigrad.links import Link
from tardigrad.policies import Policy
from tardigrad.protocol.coordinator import Coordinator, MembershipChange
from tardigrad.protocol.messages import Applied, Dropped
from tardigrad.recording.merge import merge, pushed
from tardigrad.recording.setup import RunSetup
from tardigrad.recording.shard_logs import read_story
from tardigrad.scheduling.validate import validate

LIMIT_S = 4000.0

POLICIES: dict[str, Callable[[int], Policy]] = {
    "async": lambda workers: tg.Async(),
    "sync": lambda workers: tg.Sync(),
    "backup": lambda workers: tg.Backup(1) if workers > 1 else tg.Sync(),
    "soft_sync": lambda workers: tg.SoftSync(min(2, workers)),
    "stale_synchronous": lambda workers: tg.StaleSynchronous(1),
    "deadline": lambda workers: tg.Deadline(0.15),
    "bounded_delay": lambda workers: tg.BoundedDelay(2),
    "partial": lambda workers: tg.Partial(
        push=max(1, workers - 1), pull=0.5, push_timeout_s=0.3, pull_timeout_s=0.3
    ),
    "partial_pull": lambda workers: tg.PartialPull(tg.Async(), pull=0.5, pull_timeout_s=0.3),
    "no_waiting": lambda workers: tg.Async(wait=False),
}

LINKS: dict[str, Link] = {
    "every": tg.Every(push=3, pull=2),
    "every_pull": tg.Every(pull=3),
    "bandwidth_reapply": tg.BandwidthAware(c_push=0.5, c_pull=0.5),
    "bandwidth_average": tg.BandwidthAware(c_push=0.5, c_pull=0.5, on_drop="average"),
    "budget": tg.Budget(bytes_per_update=30.0, direction="both"),
}
ASYNCHRONOUS = ("async", "stale_synchronous", "bounded_delay", "partial_pull", "no_waiting")

FAULTS = (
    "kill worker",
    "kill shard",
    "kill driver",
    "pause worker",
    "pause shard",
    "pause driver",
    "partition",
    "full disk",
    "power",
    "second driver",
    "kill again",
)


@dataclass
class Scenario:
    seed: int
    policy: str
    rule: str
    workers: int
    shards: int
    updates: int
    cut_every: int
    sync_log: bool
    late_files: bool
    hosts: int
    weather: Weather
    faults: list[tuple[float, str]]
    changes: list[MembershipChange]
    link: str = "full"


@dataclass
class Outcome:
    scenario: Scenario
    error: str = ""
    story: list[str] = field(default_factory=list)
    virtual_s: float = 0.0


def draw(seed: int) -> Scenario:
    """Everything from the seed."""
    r = random.Random(f"scenario {seed}")
    workers, shards = r.randint(1, 4), r.randint(1, 3)
    updates = r.randint(8, 24)
    sync_log = r.random() < 0.5
    kinds = [f for f in FAULTS if sync_log or f != "power"]
    faults = sorted((r.uniform(0.0, 4.0), r.choice(kinds)) for _ in range(r.randint(0, 4)))
    weather = Weather(
        delay_s=r.choice([0.001, 0.01, 0.1]),
        jitter=r.choice([0.0, 1.0, 3.0]),
        lost=r.choice([0.0, 0.0, 0.05, 0.3]),
        repeated=r.choice([0.0, 0.1]),
        call_lost=r.choice([0.0, 0.0, 0.0, 0.01]),
    )
    changes = []
    if r.random() < 0.25:
        changes.append(MembershipChange(r.randint(1, updates - 1)))
        if workers > 1 and r.random() < 0.5:
            changes.append(MembershipChange(r.randint(1, updates - 1), remove=0))
    scenario = Scenario(
        seed,
        policy=r.choice(list(POLICIES)),
        rule=r.choice(["sgd", "gap_aware", "dana", "adam"]),
        workers=workers,
        shards=shards,
        updates=updates,
        cut_every=r.choice([0, 0, 3, 7]),
        sync_log=sync_log,
        late_files=sync_log and r.random() < 0.5,
        hosts=r.randint(1, 3),
        weather=weather,
        faults=faults,
        changes=changes,
    )
    if r.random() < 0.25:
        scenario.link = r.choice(list(LINKS))
        link = LINKS[scenario.link]
        if link.withholds_pushes and link.on_drop == "average":
            scenario.policy = r.choice(ASYNCHRONOUS)
        if link.reads_deviation:
            scenario.rule = "fasgd"
    return scenario


def make_task() -> tg.FunctionTask:
    """A bowl with noise that depends on the row, so that no two gradients are the same."""
    slopes = torch.linspace(0.5, 2.0, 6, dtype=torch.float64)

    def gradient(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
        noise = torch.sin(torch.arange(6, dtype=torch.float64) * (1 + worker) + step)
        return slopes * view + 0.1 * noise

    return tg.FunctionTask(torch.ones(6, dtype=torch.float64), gradient)


def make_rule(name: str) -> rules.Rule:
    return {
        "sgd": lambda: rules.sgd(lr=0.05),
        "gap_aware": lambda: rules.gap_aware(lr=0.05),
        "dana": lambda: rules.dana(lr=0.02),
        "adam": lambda: rules.adam(lr=0.01),
        "fasgd": lambda: rules.fasgd(lr=0.01),
    }[name]()


def run(scenario: Scenario) -> Outcome:
    """What came of it; an error is a bug."""
    time = SimulatedTime(scenario.seed)
    disk = SharedDisk(time, scenario.late_files)
    task, rule = make_task(), make_rule(scenario.rule)
    setup = RunSetup(
        task,
        rule,
        POLICIES[scenario.policy](scenario.workers),
        Sharding.divide(task.layout, scenario.shards),
        scenario.workers,
        scenario.updates,
        digest_every=3,
        sync_log=scenario.sync_log,
        link=LINKS.get(scenario.link, tg.Full()),
        seed=scenario.seed,
    )
    cluster = SimulatedCluster(setup, time, Network(time, scenario.weather), disk, scenario.hosts)
    outcome = Outcome(scenario, story=time.story)
    try:
        _live(cluster, scenario)
        _check(cluster, scenario)
    except Exception as error:
        outcome.error = f"{type(error).__name__}: {error}"
    outcome.virtual_s = time.now_s
    return outcome


def _live(cluster: SimulatedCluster, scenario: Scenario) -> None:
    def make() -> Coordinator:
        return Coordinator(
            scenario.shards,
            scenario.workers,
            scenario.updates,
            scenario.cut_every,
            scenario.changes,
            keeps_unsent=cluster.setup.keeps_unsent,
        )

    def user() -> None:
        """Whoever started the run resumes it when it has ended without a result."""
        if not any(driver.alive for driver in cluster.drivers):
            cluster.start_driver(make)
        cluster.time.after(cluster.time.random.uniform(1.0, 60.0), user)

    user()
    for at_s, kind in scenario.faults:
        cluster.time.after(at_s, lambda kind=kind: _do(cluster, kind, make))
    cluster.time.run(lambda: any(d.finals is not None for d in cluster.drivers), LIMIT_S)


def _do(cluster: SimulatedCluster, kind: str, make: Callable[[], Coordinator]) -> None:
    time, draw = cluster.time, cluster.time.random
    drivers = [driver for driver in cluster.drivers if driver.alive]
    if not drivers:
        return
    driver = drivers[-1]
    if kind == "second driver":
        cluster.start_driver(make)
        return
    if kind == "partition":
        host = f"host-{draw.randrange(cluster.hosts)}"
        seconds = draw.choice([0.5, 20.0, 90.0])
        time.tell(f"{host} is cut off for {seconds:g} s")
        cluster.network.cut_off[host] = time.now_s + seconds
        return
    if kind == "full disk":
        host = draw.choice(["head", *(f"host-{i}" for i in range(cluster.hosts))])
        time.tell(f"the disk of {host} is full")
        cluster.disk.full[host] = draw.randrange(200)
        time.after(draw.choice([0.1, 5.0]), lambda: cluster.disk.full.pop(host, None))
        return
    if kind == "power":
        host = f"host-{draw.randrange(cluster.hosts)}"
        time.tell(f"{host} loses power")
        for process in cluster.processes:
            if process.host == host:
                process.kill("its host lost power")
        cluster.disk.lose_power(host)
        return
    what, _, who = kind.partition(" ")
    if kind == "kill again":
        who = draw.choice(["worker", "shard"])
        for after_s in (0.0, 1.0, 3.0, 6.0):
            time.after(after_s, lambda: _hit(cluster, driver, who, "kill"))
        return
    _hit(cluster, driver, who, what)


def _hit(cluster: SimulatedCluster, driver: SimulatedDriver, who: str, what: str) -> None:
    draw = cluster.time.random
    if who == "driver":
        target = driver
    else:
        processes = list((driver.workers if who == "worker" else driver.shards).values())
        if not processes:
            return
        target = draw.choice(processes)
    if what == "kill":
        target.kill("killed")
    else:
        seconds = draw.choice([0.2, 5.0, 100.0])
        cluster.time.tell(f"{target.name} is paused for {seconds:g} s")
        target.paused_until_s = cluster.time.now_s + seconds


def _check(cluster: SimulatedCluster, scenario: Scenario) -> None:
    """All updates made, nothing acknowledged lost, nothing twice, valid, and the same bits."""
    setup, updates = cluster.setup, scenario.updates
    driver = next(d for d in cluster.drivers if d.finals is not None)
    assert driver.finals is not None
    stories = [read_story(driver.disk, shard) for shard in range(scenario.shards)]
    for shard, story in enumerate(stories):
        came, done, versions, repeated = set(), set(), 0, 0
        for entry in story.entries:
            push = pushed(entry)
            if push is not None:
                assert push.row not in came, f"row {push.row} came to shard {shard} twice"
                came.add(push.row)
                if not push.crosses and setup.link.on_drop == "reapply":
                    repeated += 1
            for item in entry.decided:
                rows = item.rows if isinstance(item, Applied) else ()
                if isinstance(item, Dropped):
                    rows = (item.row,)
                versions += isinstance(item, Applied)
                for row in rows:
                    repeated -= row in done
                    assert repeated >= 0, f"row {row} was decided twice at shard {shard}"
                    done.add(row)
        assert versions == updates, f"shard {shard} made {versions} updates of {updates}"
        for (at, worker, step), row in cluster.promises.items():
            if at == shard:
                assert row in came, f"worker {worker}'s step {step} was acknowledged and is lost"
    schedule, losses, _ = merge(stories, scenario.workers, setup.gated)
    validate(schedule)
    replayed = tg.execute(schedule, setup.task, setup.rule, engine="exact")
    theta = torch.cat([final.theta for final in driver.finals])
    assert torch.equal(replayed.params, theta), "the replay has other bits"
    assert replayed.history.loss == losses, "the replay has other losses"
