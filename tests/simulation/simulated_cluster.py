"""A run's driver, shards and workers in one process, on simulated time, network and disk.

The objects are those that run on Ray: `Coordinator`, `ShardProcess`, `WorkerProcess`. Only the
shells around them are made here: they carry messages, and do nothing else.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from tardigrad.protocol.coordinator import Coordinator
from tardigrad.protocol.messages import FromShard
from tardigrad.recording.replica import Snapshot
from tardigrad.recording.setup import RunSetup
from tests.simulation.simulated_disk import SharedDisk
from tests.simulation.simulated_driver import SimulatedDriver
from tests.simulation.simulated_network import Network
from tests.simulation.simulated_processes import SimulatedProcess, SimulatedShard
from tests.simulation.simulated_time import SimulatedTime

Strike = Callable[[SimulatedProcess], None]


class Moments:
    """Named moments at which something is to happen, and how often each has come."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._planned: dict[tuple[str, int], list[Strike]] = {}
        self._always: dict[str, list[Strike]] = {}
        self._version = -1
        self._busy = False

    def plan(self, moment: str, nth: int, strike: Strike) -> None:
        """At the nth time, counted from 1. `version` comes with every new highest version."""
        self._planned.setdefault((moment, nth), []).append(strike)

    def always(self, moment: str, strike: Strike) -> None:
        self._always.setdefault(moment, []).append(strike)

    def come(self, moment: str, process: SimulatedProcess) -> None:
        if self._busy:  # what a fault causes is no moment
            return
        self.seen[moment] += 1
        due = self._planned.pop((moment, self.seen[moment]), [])
        if due := [*due, *self._always.get(moment, ())]:
            self._busy = True
            try:
                for strike in due:
                    strike(process)
            finally:
                self._busy = False

    def reached(self, version: int, process: SimulatedProcess) -> None:
        while self._version < version:
            self._version += 1
            self.come("version", process)


@dataclass
class SimulatedCluster:
    setup: RunSetup
    time: SimulatedTime
    network: Network
    disk: SharedDisk
    hosts: int
    mean_step_s: float = 0.1
    places: dict[str, str] = field(default_factory=dict)
    """Where a shard's or worker's processes are put; others anywhere."""
    no_room: bool = False
    moments: Moments = field(default_factory=Moments)
    drivers: list[SimulatedDriver] = field(default_factory=list)
    newest_driver: SimulatedDriver | None = None
    """Who took the newest epoch."""
    processes: list[SimulatedProcess] = field(default_factory=list)
    promises: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(shard, worker, step) of pushes whose acknowledgement has left a shard: their rows."""
    shown: dict[int, list[torch.Tensor]] = field(default_factory=dict)
    """θ of each version that was handed out to be evaluated, as often as it was;"""
    shown_last: dict[int, torch.Tensor] = field(default_factory=dict)
    """and the last time by a driver that was not deposed."""
    ends_early: bool = False
    """Whether whoever started the run has seen enough of it."""
    power_lost: bool = False
    """Whether records that were not synced were lost with a host."""

    @property
    def every_host(self) -> list[str]:
        return ["head", *(f"host-{number}" for number in range(self.hosts))]

    def host(self, who: str) -> str:
        if who in self.places:
            return self.places[who]
        return f"host-{self.time.random.randrange(self.hosts)}"

    def step_s(self, worker: int) -> float:
        return self.mean_step_s * self.time.random.gammavariate(2.0, 0.5)

    def start_driver(self, make: Callable[[], Coordinator]) -> SimulatedDriver:
        driver = SimulatedDriver(self, f"driver {len(self.drivers)}", "head")
        self.drivers.append(driver)
        self.time.tell(f"{driver.name} begins")
        driver.begin(make())
        driver.coordinator.ends_early = self.ends_early
        return driver

    def end_early(self) -> None:
        self.time.tell("the run is to end now")
        self.ends_early = True
        for driver in self.drivers:
            driver.coordinator.ends_early = True

    def finished(self) -> SimulatedDriver | None:
        """Who has finished the run, as long as it is to be now."""
        updates = self.setup.updates
        return next(
            (d for d in self.drivers if d.finals is not None and d.setup.updates == updates), None
        )

    def extend(self, updates: int) -> None:
        """Whoever started the run wants it longer. The process that has finished it is over."""
        self.time.tell(f"the run is to have {updates} updates")
        self.setup = replace(self.setup, updates=updates, first_updates=self.setup.begun_with)
        self.ends_early = False
        for driver in self.drivers:
            if driver.finals is not None:
                driver.kill("it has done its work")

    def promise(self, shard: SimulatedShard, message: FromShard) -> None:
        """What a driver that was deposed has, or a process that was given up, is no promise."""
        if shard.superseded or shard.owner is not self.newest_driver:
            return
        channel = shard.process.replica.session.channels[message.worker]
        if channel.last is not None:
            self.promises[shard.number, message.worker, channel.step] = channel.last.row

    def show(self, driver: SimulatedDriver, snapshots: Sequence[Sequence[Snapshot]]) -> None:
        for parts in snapshots:
            (version,) = {part.version for part in parts}
            theta = torch.cat([part.theta for part in parts])
            self.shown.setdefault(version, []).append(theta)
            if driver is self.newest_driver:
                self.shown_last[version] = theta

    def lose_power(self, host: str) -> None:
        """Logs that are not synced do not survive it, and what they promised is void."""
        self.time.tell(f"{host} loses power")
        for process in [*self.processes, *self.drivers]:
            if process.host == host:
                process.kill("its host lost power")
        lost = self.disk.lose_power(host)
        if lost and not self.setup.sync_log:
            self.time.tell(f"{lost} bytes are lost")
            self.power_lost = True
            self.promises.clear()

    def lost_entries(self) -> None:
        if self.power_lost:
            self.promises.clear()
