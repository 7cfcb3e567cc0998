"""A driver: carries out what a `Coordinator` yields."""

import contextlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tardigrad.protocol.calls import (
    Answer,
    Ask,
    CallOutcome,
    Dead,
    Effect,
    EndProcess,
    FinishCut,
    MakeShards,
    MakeWorkers,
    NextCut,
    Process,
    Recover,
    ShardCall,
    Show,
    TakeEpoch,
    Tell,
    WaitForDeaths,
    WorkerCall,
)
from tardigrad.protocol.coordinator import Coordinator
from tardigrad.protocol.run_processes import RunFailed
from tardigrad.recording.cuts import finish_cut, next_cut
from tardigrad.recording.epochs import (
    EXTEND,
    FINISH,
    Deposed,
    Epochs,
    Length,
    RunFinished,
    length,
)
from tardigrad.recording.recovery import RecoveredRun
from tardigrad.runtime.shard_process import LifeEnded, ShardProcess, shard_origin
from tests.simulation.simulated_disk import SlowlyRead
from tests.simulation.simulated_processes import (
    Gone,
    SimulatedProcess,
    SimulatedShard,
    SimulatedWorker,
)

MAKE_S = 0.2
READ_S = 0.1
"""How long it takes to make a process, and to read a shard's logs."""
MANY_DEATHS = 4
"""Times its patience: it hears later than they happen that updates were made."""
ENDS = (RunFailed, Deposed, RunFinished, OSError)
"""What a driver may end with; whoever started it resumes the run."""


class SimulatedDriver(SimulatedProcess):
    finals: list[Any] | None = None
    error: Exception | None = None

    def begin(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.shards: dict[int, SimulatedShard] = {}
        self.workers: dict[int, SimulatedWorker] = {}
        before = length(self.disk, self.cluster.setup.begun_with)
        self.setup = replace(
            self.cluster.setup, updates=coordinator.updates, first_updates=before.first
        )
        self.epochs = Epochs(self.disk, self.name, Length(coordinator.updates, before.first))
        self._extends = coordinator.updates > before.updates
        self._died: list[SimulatedProcess] = []
        self._deaths: Counter[Process | None] = Counter()
        """How often each has died at the newest version,"""
        self._deaths_at = -1
        self._waiting: Callable[[], None] | None = None
        self._asked: list[tuple[SimulatedProcess, Callable[[], None]]] = []
        """Whom it waits for an answer of, and what follows if they have died."""
        self._steps = coordinator.run()
        self.at(0.0, self._begin)

    def _begin(self) -> None:
        try:
            if self._extends:
                self.tell_moment("extends")
                self.epochs.take(EXTEND)
        except ENDS as error:
            self._fail(error)
        else:
            self._resume(None)

    def died(self) -> None:
        """Its processes go with it, some a little later."""
        for process in [*self.shards.values(), *self.workers.values()]:
            late_s = self.cluster.time.random.choice([0.0, 0.5, 20.0])
            process.at(late_s, partial(process.kill, "its driver died"))

    def notice_death(self, process: SimulatedProcess) -> None:
        """A while after it has happened."""
        seconds = self.cluster.time.random.uniform(0.01, 2.0)
        self.at(seconds, lambda: self._noticed(process))

    def _noticed(self, process: SimulatedProcess) -> None:
        self._check_patience(process)
        self._died.append(process)
        for asked, give_up in list(self._asked):
            if asked is process:
                give_up()
        if self._waiting is not None:
            self._waiting()

    def _check_patience(self, process: SimulatedProcess) -> None:
        """Whoever dies again and again, and nothing comes of it, ends the run."""
        version = max((shard.reached for shard in self.shards.values()), default=0)
        if version > self._deaths_at:
            self._deaths_at = version
            self._deaths.clear()
        self._deaths[self._who(process)] += 1
        most = MANY_DEATHS * self.coordinator.patience.deaths
        assert max(self._deaths.values()) <= most, f"{process.name} dies, and the run goes on"

    def _who(self, process: SimulatedProcess) -> Process | None:
        """None: another process has its place."""
        for number, shard in self.shards.items():
            if shard is process:
                return Process("shard", number)
        for number, worker in self.workers.items():
            if worker is process:
                return Process("worker", number)
        return None

    def _resume(self, value: Any) -> None:
        try:
            effect = self._steps.send(value)
        except StopIteration as stop:
            self._finish(stop.value)
        except ENDS as error:
            self._fail(error)
        else:
            self.tell_moment(f"does {type(effect).__name__}")
            if self.paused:
                self.at(0.0, lambda: self._carry_out(effect))
            else:
                self._carry_out(effect)

    def _finish(self, finals: list[Any]) -> None:
        try:
            self.tell_moment("finishes")
            self.epochs.take(FINISH)
        except ENDS as error:
            self._fail(error)
            return
        self.finals = finals
        self.cluster.time.tell(f"{self.name} has finished the run")

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.kill(f"{type(error).__name__}: {error}")

    def _carry_out(self, effect: Effect) -> None:
        try:
            self._start(effect)
        except ENDS as error:
            self._fail(error)

    def _start(self, effect: Effect) -> None:
        """Each ends in `_resume`, now or later."""
        value: Any = None
        match effect:
            case Ask(calls, limit_s):
                self._ask(calls, limit_s)
                return
            case WaitForDeaths(seconds):
                self._watch(seconds)
                return
            case MakeShards(epochs, recovered, held):
                self.at(MAKE_S, lambda: self._resume(self._make_shards(epochs, recovered, held)))
                return
            case MakeWorkers(workers, _):
                self.at(MAKE_S, lambda: self._resume([self._make_worker(w) for w in workers]))
                return
            case Recover():
                processes = self.cluster.processes
                writes = any(isinstance(p, SimulatedShard) and p.alive for p in processes)
                self._recover(SlowlyRead(self.disk), 0, writes)
                return
            case EndProcess(process):
                self._end(process)
            case TakeEpoch(purpose):
                value = self.epochs.take(purpose)
                self.cluster.newest_driver = self
            case NextCut():
                value = next_cut(self.disk)
            case FinishCut(number, places, unsent, states):
                finish_cut(self.disk, number, places, unsent, states)
                self.cluster.time.tell(f"cut {number} is made")
            case Tell(text):
                self.cluster.time.tell(f"{self.name}: {text}")
            case Show(_, _, snapshots):
                self.cluster.show(self, snapshots)
        self._resume(value)

    def _recover(self, reading: SlowlyRead, shard: int, writes: bool) -> None:
        """One shard's logs after the other, while their processes may go on. writes: whether any
        shard's process did when this began."""
        if shard < self.cluster.setup.shards:
            reading.read_logs(f"logs/shard-{shard}.")
            self.at(READ_S, lambda: self._recover(reading, shard + 1, writes))
            return
        try:
            recovered = RecoveredRun(self.setup, reading)
            self.epochs.check()
        except ENDS as error:
            self._fail(error)
            return
        if any(recovered.lost):
            self.cluster.lost_entries()
            late = self.cluster.disk.late
            assert not self.setup.sync_log or writes or late, (
                f"{sum(recovered.lost)} entries of synced logs are void: the others explain what "
                "such a log holds, as long as nobody writes on"
            )
        self._resume(recovered)

    def _process(self, process: Process) -> SimulatedShard | SimulatedWorker | None:
        if process.kind == "shard":
            return self.shards.get(process.number)
        return self.workers.get(process.number)

    def _ask(self, calls: Sequence[tuple[Process, ShardCall | WorkerCall]], limit_s: float) -> None:
        outcomes: list[CallOutcome | None] = [None] * len(calls)
        over = False

        def settle(at: int, outcome: CallOutcome) -> None:
            nonlocal over
            if not over and outcomes[at] is None:
                outcomes[at] = outcome
                if all(one is not None for one in outcomes):
                    over = True
                    self._resume(outcomes)

        def give_up() -> None:
            for at, (process, _) in enumerate(calls):
                settle(at, Dead(process, f"it has not answered for {limit_s:g} s"))

        if not calls:
            self.at(0.0, lambda: self._resume([]))
            return
        self._asked.clear()
        self.at(limit_s, give_up)
        for kind in sorted({type(call).__name__ for _, call in calls}):
            self.tell_moment(f"asks {kind}")
        for at, (who, call) in enumerate(calls):
            self._call(who, call, partial(settle, at))
            self.tell_moment(f"has asked {type(call).__name__}")

    def _call(self, who: Process, call: Any, settle: Callable[[CallOutcome], None]) -> None:
        target, network = self._process(who), self.cluster.network
        if target is None or not target.alive:
            why = "it was never there" if target is None else target.why
            self.at(0.05, lambda: settle(Dead(who, why)))
            return

        self._asked.append((target, lambda: settle(Dead(who, target.why))))

        def answer(value: Any) -> None:
            target.tell_moment(f"has done {type(call).__name__}")
            network.call(
                target.host,
                self.host,
                (target.name, self.name),
                lambda: self.at(0.0, lambda: settle(Answer(value))),
            )

        def arrive() -> None:
            if target.alive:
                target.at(0.0, lambda: target.call(call, answer))
            else:
                self.at(0.05, lambda: settle(Dead(who, target.why)))

        # Where it cannot tell whether a call has arrived, a driver calls again.
        again = self.cluster.time.random.random() < network.weather.repeated
        for _ in range(2 if again else 1):
            network.call(self.host, target.host, (self.name, target.name), arrive)

    def _watch(self, seconds: float) -> None:
        over = False

        def go_on() -> None:
            nonlocal over
            if not over:
                over = True
                self._waiting = None
                died, self._died = self._died, []
                known = [(self._who(process), process.why) for process in died]
                self._resume([Dead(who, why) for who, why in known if who is not None])

        if self._died:
            self.at(0.0, go_on)
        else:
            self._waiting = go_on
            self.at(seconds, go_on)

    def _make_shards(
        self, epochs: dict[int, int], recovered: RecoveredRun, held: bool
    ) -> list[CallOutcome]:
        outcomes: list[CallOutcome] = []
        for shard, epoch in epochs.items():
            who = Process("shard", shard)
            if self.cluster.no_room:
                outcomes.append(Dead(who, "no node has room"))
                continue
            name = f"{self.name}'s {who}, epoch {epoch}"
            made = SimulatedShard(self.cluster, name, self.cluster.host(str(who)), self)
            self.shards[shard] = made
            self.cluster.processes.append(made)
            try:
                origin = shard_origin(recovered, shard, epoch)
                made.begin(shard, ShardProcess(self.setup, made.disk, origin, held))
                made.tell_moment("is made")
            except LifeEnded as error:
                made.kill(str(error))
            except Gone:
                pass
            outcomes.append(Answer(None) if made.alive else Dead(who, made.why))
        return outcomes

    def _make_worker(self, worker: int) -> CallOutcome:
        who = Process("worker", worker)
        if self.cluster.no_room:
            return Dead(who, "no node has room")
        life = sum(isinstance(p, SimulatedWorker) for p in self.cluster.processes)
        name = f"{self.name}'s {who} (process {life})"
        made = SimulatedWorker(self.cluster, name, self.cluster.host(str(who)), self)
        self.workers[worker] = made
        self.cluster.processes.append(made)
        made.begin(worker)
        with contextlib.suppress(Gone):
            made.tell_moment("is made")
        return Answer(None)

    def _end(self, who: Process) -> None:
        """A process that cannot be reached goes on for as long as it likes."""
        target = self._process(who)
        if target is None:
            return
        if isinstance(target, SimulatedShard):
            target.superseded = True
        reached = self.cluster.network.reaches(self.host, target.host)
        if reached and target.alive and not target.paused:
            target.alive, target.why = False, "ended by its driver"
