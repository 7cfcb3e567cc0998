"""A run's driver, shards and workers in one process, on simulated time, network and disk.

The objects are those that run on Ray: `Coordinator`, `ShardProcess`, `WorkerProcess`. Only the
shells around them are made here: they carry messages, and do nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from simulated_disk import SharedDisk, SimulatedDisk
from simulated_time import SimulatedTime

from tardigrad.protocol.calls import (
    Answer,
    Ask,
    AskWorker,
    BeginWork,
    Dead,
    EndProcess,
    FinishCut,
    HoldSteps,
    MakeShards,
    MakeWorkers,
    MeetShard,
    NextCut,
    Process,
    Recover,
    Show,
    StopWork,
    TakeEpoch,
    TakeUnsent,
    Tell,
    Watch,
)
from tardigrad.protocol.coordinator import Coordinator, RunFailed
from tardigrad.protocol.messages import FromShard, FromWorker, PushHeader, TimerSet
from tardigrad.protocol.worker_session import Compute, Forget, Send, WorkerTimer
from tardigrad.recording.cuts import finish_cut, next_cut
from tardigrad.recording.epochs import FINISH, Deposed, Epochs, RunFinished
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.recording.setup import RunSetup
from tardigrad.runtime.shard_process import LifeEnded, ShardProcess, shard_origin
from tardigrad.runtime.worker_process import WorkerProcess

RESEND_S = 1.0


@dataclass
class Weather:
    """What the network does."""

    delay_s: float = 0.01
    jitter: float = 1.0
    lost: float = 0.0
    repeated: float = 0.0
    call_lost: float = 0.0


class Network:
    def __init__(self, time: SimulatedTime, weather: Weather) -> None:
        self.time, self.weather = time, weather
        self.cut_off: dict[str, float] = {}
        """Hosts that nobody reaches, and until when."""
        self.sent = 0

    def reaches(self, one: str, other: str) -> bool:
        now_s = self.time.now_s
        return one == other or all(self.cut_off.get(host, 0.0) <= now_s for host in (one, other))

    def send(self, one: str, other: str, deliver: Callable[[], None], lost: float) -> None:
        """It may be lost, come twice, and overtake others."""
        draw, weather = self.time.random, self.weather
        self.sent += 1
        for _ in range(2 if draw.random() < weather.repeated else 1):
            if draw.random() < lost or not self.reaches(one, other):
                continue
            delay_s = weather.delay_s * (1 + weather.jitter * draw.expovariate(1.0))
            self.time.after(delay_s, lambda: self.reaches(one, other) and deliver())


@dataclass
class SimulatedProcess:
    """Anything that can be killed or paused."""

    cluster: "SimulatedCluster"
    name: str
    host: str
    owner: "SimulatedDriver | None" = None
    alive: bool = True
    why: str = ""
    paused_until_s: float = 0.0

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """After so long, or when it goes on if it is paused; never if it has died."""
        self.cluster.time.after(seconds, lambda: self._do(do))

    def _do(self, do: Callable[[], None]) -> None:
        if not self.alive:
            return
        wait_s = self.paused_until_s - self.cluster.time.now_s
        if wait_s > 0:
            self.at(wait_s, do)
            return
        do()

    def kill(self, why: str) -> None:
        if self.alive:
            self.alive, self.why = False, why
            self.cluster.time.tell(f"{self.name} dies: {why}")
            self.died()

    def died(self) -> None:
        if self.owner is not None:
            self.owner.notice_death(self)


class SimulatedShard(SimulatedProcess):
    process: ShardProcess

    def begin(self, shard: int, process: ShardProcess) -> None:
        self.shard, self.process = shard, process
        self.superseded = False
        for token, due_s in process.timers():
            self._set_timer(max(0.0, due_s - self.cluster.time.now_s), token)

    def _set_timer(self, seconds: float, token: int) -> None:
        self.at(seconds, lambda: self.guarded(lambda: self.process.rang(token, self.now_s)))

    @property
    def now_s(self) -> float:
        return self.cluster.time.now_s

    def guarded(self, do: Callable[[], Any]) -> None:
        """Do it, and what follows; an error of the disk ends this life."""
        try:
            self.carry_out(do())
        except LifeEnded as error:
            self.kill(str(error))

    def carry_out(self, out: list[Any]) -> None:
        for item in out:
            if isinstance(item, TimerSet):
                self._set_timer(item.seconds, item.token)
            else:
                self.say(item)

    def say(self, message: FromShard) -> None:
        assert self.owner is not None
        self.cluster.promise(self, message)
        sent = self.process.replica.sent
        payloads = [sent[r.version] if r.carries else None for r in message.releases]
        worker = self.owner.workers.get(message.worker)
        if worker is not None:
            self.cluster.network.send(
                self.host,
                worker.host,
                lambda: worker.at(0.0, lambda: worker.hear(message, payloads)),
                self.cluster.network.weather.lost,
            )

    def hear(self, message: Any, part: Any) -> None:
        self.guarded(lambda: self.process.hear(message, part, self.now_s))

    def call(self, call: Any, answer: Callable[[Any], None]) -> None:
        def do() -> Any:
            value, out = self.process.call(call, self.now_s)
            answer(value)
            return out

        self.guarded(do)


class SimulatedWorker(SimulatedProcess):
    process: WorkerProcess | None = None

    def begin(self, worker: int) -> None:
        self.worker = worker

    @property
    def now_s(self) -> float:
        return self.cluster.time.now_s

    def call(self, call: Any, answer: Callable[[Any], None]) -> None:
        if isinstance(call, BeginWork):
            if self.process is None:
                self._begin_work(call)
            answer(None)
            return
        if self.process is None:
            answer({MeetShard: True, TakeUnsent: {}}.get(type(call)))
            return
        session = self.process.session
        match call:
            case MeetShard(shard, began):
                good = session.replaced_shard(shard, began)
                answer(good)
                if good:
                    self._say_again(shard)
            case HoldSteps(held):
                if held:
                    session.hold()
                else:
                    self.carry_out(session.go_on(self.now_s))
                answer(None)
            case AskWorker():
                answer(session.status)
            case StopWork():
                session.stop()
                answer(None)
            case TakeUnsent():
                answer(self.process.unsent())

    def _begin_work(self, call: BeginWork) -> None:
        self.process = WorkerProcess(
            self.cluster.setup, call.start, lambda payload, out: out.copy_(payload)
        )
        self.carry_out(self.process.session.begin(self.now_s))
        for shard in range(self.cluster.setup.shards):
            self._say_again(shard)
        self._nudge()

    def _nudge(self) -> None:
        self.at(RESEND_S, self._resend)

    def _resend(self) -> None:
        for shard in range(self.cluster.setup.shards):
            self._say_again(shard)
        self._nudge()

    def _say_again(self, shard: int) -> None:
        assert self.process is not None
        for message in self.process.session.again(shard):
            self._send(shard, message)

    def hear(self, message: FromShard, payloads: list[Any]) -> None:
        if self.process is not None:
            self.carry_out(self.process.session.hear(message, payloads, self.now_s))

    def carry_out(self, out: list[Any]) -> None:
        assert self.process is not None
        for item in out:
            match item:
                case Send(shard, message):
                    self._send(shard, message)
                case Compute():
                    self.process.load(item)
                    step_s = self.cluster.step_s(self.worker)
                    self.at(step_s, lambda item=item: self._computed(item))
                case Forget():
                    self.process.forget(item)
                case WorkerTimer(seconds, token):
                    self.at(seconds, lambda token=token: self._rang(token))

    def _computed(self, compute: Compute) -> None:
        assert self.process is not None
        computed = self.process.gradient(compute)
        self.carry_out(self.process.computed(compute, computed, self.now_s, self.now_s))

    def _rang(self, token: int) -> None:
        assert self.process is not None
        self.carry_out(self.process.session.timer(token, self.now_s))

    def _send(self, shard: int, message: Any) -> None:
        assert self.owner is not None
        assert self.process is not None
        part = None
        if isinstance(message, FromWorker) and isinstance(message.body, PushHeader):
            part = self.process.part(message.body, shard)
        target = self.owner.shards.get(shard)
        if target is not None:
            self.cluster.network.send(
                self.host,
                target.host,
                lambda: target.at(0.0, lambda: target.hear(message, part)),
                self.cluster.network.weather.lost,
            )


class SimulatedDriver(SimulatedProcess):
    """Carries out what a `Coordinator` yields."""

    def begin(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.shards: dict[int, SimulatedShard] = {}
        self.workers: dict[int, SimulatedWorker] = {}
        self.disk = SimulatedDisk(self.cluster.disk, self.host)
        self.epochs = Epochs(self.disk, self.name)
        self.finals: list[Any] | None = None
        self.error: Exception | None = None
        self._deaths: list[Dead] = []
        self._waiting: Callable[[], None] | None = None
        self._steps = coordinator.run()
        self.at(0.0, lambda: self._resume(None))

    def died(self) -> None:
        """Its processes go with it, some a little later."""
        for process in [*self.shards.values(), *self.workers.values()]:
            late_s = self.cluster.time.random.choice([0.0, 0.5, 20.0])
            process.at(late_s, lambda p=process: p.kill("its driver died"))

    def notice_death(self, process: SimulatedProcess) -> None:
        """A while after it has happened."""
        seconds = self.cluster.time.random.uniform(0.01, 2.0)
        self.at(seconds, lambda: self._noticed(process))

    def _noticed(self, process: SimulatedProcess) -> None:
        for kind, processes in (("shard", self.shards), ("worker", self.workers)):
            for number, mine in processes.items():
                if mine is process:
                    self._deaths.append(Dead(Process(kind, number), process.why))
        if self._waiting is not None:
            self._waiting()

    def _resume(self, value: Any) -> None:
        while True:
            try:
                effect = self._steps.send(value)
            except StopIteration as stop:
                self._finish(stop.value)
                return
            except (RunFailed, Deposed, RunFinished, OSError) as error:
                self._fail(error)
                return
            try:
                done, value = self._carry_out(effect)
            except (Deposed, RunFinished, OSError) as error:
                self._fail(error)
                return
            if not done:
                return

    def _finish(self, finals: list[Any]) -> None:
        try:
            self.epochs.take(FINISH)
        except (Deposed, RunFinished, OSError) as error:
            self._fail(error)
            return
        self.finals = finals
        self.cluster.time.tell(f"{self.name} has finished the run")

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.kill(f"{type(error).__name__}: {error}")

    def _carry_out(self, effect: Any) -> tuple[bool, Any]:
        """Whether it is done, and with what; else `_resume` is called later."""
        match effect:
            case Ask(calls, limit_s):
                self._ask(calls, limit_s)
                return False, None
            case Watch(seconds):
                self._watch(seconds)
                return False, None
            case MakeShards(epochs, recovered, held):
                self.at(0.2, lambda: self._make_shards(epochs, recovered, held))
                return False, None
            case MakeWorkers(workers, _):
                self.at(0.2, lambda: self._resume([self._make_worker(w) for w in workers]))
                return False, None
            case EndProcess(process):
                self._end(process)
                return True, None
            case TakeEpoch(purpose):
                return True, self.epochs.take(purpose)
            case Recover():
                recovered = RecoveredRun(self.cluster.setup, self.disk)
                self.epochs.check()
                return True, recovered
            case NextCut():
                return True, next_cut(self.disk)
            case FinishCut(number, places, unsent):
                finish_cut(self.disk, number, places, unsent)
                self.cluster.time.tell(f"cut {number} is made")
                self.cluster.cuts_made += 1
                return True, None
            case Tell(text):
                self.cluster.time.tell(f"{self.name}: {text}")
                return True, None
            case Show():
                return True, None
        raise TypeError(effect)

    def _process(self, process: Process) -> SimulatedShard | SimulatedWorker | None:
        return (self.shards if process.kind == "shard" else self.workers).get(process.number)

    def _ask(self, calls: Any, limit_s: float) -> None:
        outcomes: list[Any] = [None] * len(calls)
        over = [False]

        def settle(at: int, outcome: Any) -> None:
            if not over[0] and outcomes[at] is None:
                outcomes[at] = outcome
                if all(one is not None for one in outcomes):
                    over[0] = True
                    self._resume(outcomes)

        def give_up() -> None:
            for at, (process, _) in enumerate(calls):
                settle(at, Dead(process, f"it has not answered for {limit_s:g} s"))

        if not calls:
            self.at(0.0, lambda: self._resume([]))
            return
        self.at(limit_s, give_up)
        for at, (who, call) in enumerate(calls):
            self._call(who, call, lambda outcome, at=at: settle(at, outcome))

    def _call(self, who: Process, call: Any, settle: Callable[[Any], None]) -> None:
        target, network = self._process(who), self.cluster.network
        lost = network.weather.call_lost
        if target is None or not target.alive:
            why = "it was never there" if target is None else target.why
            self.at(0.05, lambda: settle(Dead(who, why)))
            return

        def answer(value: Any) -> None:
            back = lambda: self.at(0.0, lambda: settle(Answer(value)))  # noqa: E731
            network.send(target.host, self.host, back, lost)

        def arrive() -> None:
            if target.alive:
                target.at(0.0, lambda: target.call(call, answer))
            else:
                self.at(0.05, lambda: settle(Dead(who, target.why)))

        network.send(self.host, target.host, arrive, lost)

    def _watch(self, seconds: float) -> None:
        over = [False]

        def go_on() -> None:
            if not over[0]:
                over[0] = True
                self._waiting = None
                found, self._deaths = self._deaths, []
                self._resume(found)

        if self._deaths:
            self.at(0.0, go_on)
        else:
            self._waiting = go_on
            self.at(seconds, go_on)

    def _make_shards(self, epochs: dict[int, int], recovered: RecoveredRun, held: bool) -> None:
        outcomes: list[Any] = []
        for shard, epoch in epochs.items():
            who = Process("shard", shard)
            host = self.cluster.host_for(f"shard-{shard}")
            made = SimulatedShard(self.cluster, f"{self.name}'s {who}, epoch {epoch}", host, self)
            disk = SimulatedDisk(self.cluster.disk, host)
            try:
                origin = shard_origin(recovered, shard, epoch)
                process = ShardProcess(self.cluster.setup, disk, origin, held)
            except LifeEnded as error:
                outcomes.append(Dead(who, str(error)))
                continue
            made.begin(shard, process)
            self.shards[shard] = made
            self.cluster.processes.append(made)
            outcomes.append(Answer(None))
        self._resume(outcomes)

    def _make_worker(self, worker: int) -> Any:
        who = Process("worker", worker)
        if self.cluster.no_room:
            return Dead(who, "no node has room")
        host = self.cluster.host_for(f"worker-{worker}")
        made = SimulatedWorker(self.cluster, f"{self.name}'s {who}", host, self)
        made.begin(worker)
        self.workers[worker] = made
        self.cluster.processes.append(made)
        return Answer(None)

    def _end(self, who: Process) -> None:
        """A process that cannot be reached goes on for as long as it likes."""
        target = self._process(who)
        if target is None:
            return
        if isinstance(target, SimulatedShard):
            target.superseded = True
        if self.cluster.network.reaches(self.host, target.host):
            target.owner = self
            if target.alive and target.paused_until_s <= self.cluster.time.now_s:
                target.alive, target.why = False, "ended by its driver"


@dataclass
class SimulatedCluster:
    setup: RunSetup
    time: SimulatedTime
    network: Network
    disk: SharedDisk
    hosts: int
    mean_step_s: float = 0.1
    no_room: bool = False
    drivers: list[SimulatedDriver] = field(default_factory=list)
    processes: list[SimulatedProcess] = field(default_factory=list)
    promises: dict[tuple[int, int, int], int] = field(default_factory=dict)
    """(shard, worker, step) of pushes whose acknowledgement has left a shard: their rows."""
    cuts_made: int = 0

    def host_for(self, name: str) -> str:
        return f"host-{self.time.random.randrange(self.hosts)}"

    def step_s(self, worker: int) -> float:
        return self.mean_step_s * self.time.random.gammavariate(2.0, 0.5)

    def start_driver(self, make: Callable[[], Coordinator]) -> SimulatedDriver:
        driver = SimulatedDriver(self, f"driver {len(self.drivers)}", "head")
        self.drivers.append(driver)
        self.time.tell(f"{driver.name} begins")
        driver.begin(make())
        return driver

    def promise(self, shard: SimulatedShard, message: FromShard) -> None:
        """A process that its driver has given up promises nothing."""
        driver = shard.owner
        assert driver is not None
        newest = driver is self.drivers[-1]
        if shard.superseded or not newest or self._taken_over(driver):
            return
        channel = shard.process.replica.session.channels[message.worker]
        if channel.last is not None:
            self.promises[shard.shard, message.worker, channel.step] = channel.last.row

    def _taken_over(self, driver: SimulatedDriver) -> bool:
        return len(self.drivers) > 1 and driver is not self.drivers[-1]
