"""What goes wrong, and when: at a moment that processes tell of, the nth time it comes.

Moments are counted, not timed, so that faults are spread over a run however long it takes, and can
be aimed at what is rare: a start, a cut, the replacement of another process, the end.
"""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tardigrad.protocol.coordinator import Coordinator
from tardigrad.protocol.run_processes import RunFailed
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.simulated_disk import FullDisk
from tests.simulation.simulated_driver import SimulatedDriver
from tests.simulation.simulated_processes import SimulatedProcess

FOR_EVER_S = 100.0
"""A crash loop as long as this ends only with the driver."""

KINDS = (
    "kill",
    "pause",
    "partition",
    "one-way partition",
    "torn write",
    "full disk",
    "power",
    "second driver",
    "no room",
    "crash loop",
)
TARGETS = ("it", "worker", "shard", "driver")
"""`it` is the process whose moment it is; the others are any one, unless a number is said."""

COMMON = ("sends PushHeader", "answers", "appends")
"""Moments that come with every gradient;"""
PASSING = ("sends Confirmation", "sends RowRequest", "sends VersionRequest", "syncs", "does Show")
"""now and then;"""
RARE = (
    "is made",
    "creates",
    "replaces",
    "finishes",
    "extends",
    "does TakeEpoch",
    "does Recover",
    "does MakeShards",
    "does MakeWorkers",
    "does EndProcess",
    "does NextCut",
    "does FinishCut",
    *(
        f"{when} {call}"
        for when in ("asks", "has asked", "has done")
        for call in (
            "BeginWork",
            "ReplaceWorker",
            "CompleteRow",
            "JoinWorker",
            "LeaveWorker",
            "FenceShard",
            "ReinstateShard",
            "OpenShard",
            "HoldReleases",
            "HoldSteps",
            "SaveCut",
            "MeetShard",
            "FinishShard",
            "StopWork",
        )
    ),
)
"""and only where a run begins, is cut, is mended, changes or ends."""


@dataclass(frozen=True)
class Fault:
    kind: str
    moment: str
    nth: int
    target: str = "it"
    delay_s: float = 0.0
    """After the moment; 0: in the middle of it."""
    seconds: float = 0.0
    """How long it lasts."""

    def __str__(self) -> str:
        return f"{self.kind} {self.target} at {self.moment!r} number {self.nth} + {self.delay_s:g}"


def draw_faults(r: random.Random, updates: int, workers: int, shards: int) -> list[Fault]:
    return [_draw_fault(r, updates, workers, shards) for _ in range(r.randint(0, 8))]


def _draw_fault(r: random.Random, updates: int, workers: int, shards: int) -> Fault:
    kind = r.choice([*KINDS, "kill", "kill", "kill", "pause", "partition"])
    spread = r.random()
    if kind == "torn write":
        moment, nth = "appends", r.randint(1, 6 * updates * shards)
    elif spread < 0.4:
        moment, nth = "version", r.randint(1, updates + 1)
    elif spread < 0.55:
        moment, nth = r.choice(COMMON), r.randint(1, 3 * updates * shards)
    elif spread < 0.65:
        moment, nth = r.choice(PASSING), r.randint(1, updates)
    else:
        moment, nth = r.choice(RARE), r.randint(1, 1 + workers + shards)
    return Fault(
        kind,
        moment,
        nth,
        "it" if kind == "torn write" else r.choice(TARGETS),
        0.0 if kind == "torn write" else r.choice([0.0, 0.0, r.uniform(0.0, 0.5)]),
        r.choice([0.3, 5.0, 60.0, 100.0]),
    )


@dataclass
class Faults:
    """Those of one scenario, with whoever starts drivers."""

    cluster: SimulatedCluster
    make: Callable[[], Coordinator]
    happened: Counter[str] = field(default_factory=Counter)

    def plan(self, fault: Fault) -> None:
        """Counted from now on."""
        moments = self.cluster.moments
        nth = moments.seen[fault.moment] + fault.nth
        moments.plan(fault.moment, nth, lambda process: self._strike(fault, process))

    def _strike(self, fault: Fault, process: SimulatedProcess) -> None:
        if fault.delay_s:
            self.cluster.time.after(fault.delay_s, lambda: self._do(fault, process))
        else:
            self._do(fault, process)

    def _do(self, fault: Fault, process: SimulatedProcess) -> None:
        target = self._target(fault.target, process)
        if target is None:
            return
        cluster, time = self.cluster, self.cluster.time
        self.happened[fault.kind] += 1
        time.tell(f"fault: {fault}")
        match fault.kind:
            case "kill":
                target.kill("killed")
            case "pause":
                time.tell(f"{target.name} is paused for {fault.seconds:g} s")
                target.paused_until_s = time.now_s + fault.seconds
            case "partition" | "one-way partition":
                self._cut_off(target.host, fault)
            case "torn write":
                target.torn = time.random.randrange(10_000)
            case "full disk":
                time.tell(f"the disk of {target.host} is full for {fault.seconds:g} s")
                full = FullDisk(time.random.randrange(200), time.random.random() < 0.5)
                cluster.disk.full[target.host] = full
                time.after(fault.seconds, lambda: cluster.disk.full.pop(target.host, None))
            case "power":
                cluster.lose_power(target.host)
            case "second driver":
                cluster.start_driver(self.make)
            case "no room":
                cluster.no_room = True
                time.after(fault.seconds, self._room_again)
            case "crash loop":
                self._curse(target, fault.seconds)

    def _target(self, which: str, process: SimulatedProcess) -> SimulatedProcess | None:
        """None: there is none, or it has died already."""
        drivers = [driver for driver in self.cluster.drivers if driver.alive]
        if which == "it" or not drivers:
            return process if process.alive else None
        driver = drivers[-1]
        if which == "driver":
            return driver
        kind, _, number = which.partition(" ")
        found = driver.workers if kind == "worker" else driver.shards
        alive = [one for n, one in found.items() if one.alive and str(n) == (number or str(n))]
        return self.cluster.time.random.choice(alive) if alive else None

    def _cut_off(self, host: str, fault: Fault) -> None:
        """From everybody, or from one other host."""
        draw, network = self.cluster.time.random, self.cluster.network
        others = [other for other in self.cluster.every_host if other != host]
        peers = set() if draw.random() < 0.5 else {draw.choice(others)}
        both_ways = fault.kind == "partition"
        senders, receivers = {host}, peers
        if not both_ways and draw.random() < 0.5:
            senders, receivers = receivers, senders
        self.cluster.time.tell(
            f"nothing gets from {sorted(senders) or 'others'} to {sorted(receivers) or 'others'}"
            f"{' or back' if both_ways else ''} for {fault.seconds:g} s"
        )
        network.cut_off(senders, receivers, fault.seconds, both_ways)

    def _room_again(self) -> None:
        self.cluster.no_room = False

    def _curse(self, target: SimulatedProcess, seconds: float) -> None:
        """It dies whenever it has been made, for a while or until the run has failed."""
        cluster = self.cluster
        if isinstance(target, SimulatedDriver):
            return
        kind, until_s = type(target), cluster.time.now_s + seconds
        if seconds >= FOR_EVER_S:
            until_s = math.inf
        number = target.number
        failed = self._failures()

        def again(process: SimulatedProcess) -> None:
            over = cluster.time.now_s > until_s or self._failures() > failed
            if not over and isinstance(process, kind) and process.number == number:
                late_s = cluster.time.random.choice([0.0, 0.01, 0.3])
                cluster.time.after(late_s, lambda: process.kill("it dies again and again"))

        cluster.moments.always("is made", again)
        target.kill("it dies again and again")

    def _failures(self) -> int:
        return sum(isinstance(driver.error, RunFailed) for driver in self.cluster.drivers)
