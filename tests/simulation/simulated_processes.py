"""Shards' and workers' processes: the objects that run on Ray, in shells that carry messages.

Anything happens between two steps of a process; at the *moments* that it tells of (`tell_moment`)
a fault may strike in the middle of one.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import Tensor

from tardigrad.links import Encoded
from tardigrad.protocol.calls import (
    AskWorker,
    BeginWork,
    HoldSteps,
    MeetShard,
    ShardCall,
    StopWork,
    TakeState,
    TakeUnsent,
    WorkerCall,
)
from tardigrad.protocol.messages import FromShard, FromWorker, Hello, PushHeader, TimerSet
from tardigrad.protocol.resending import CHECK_S, Resending
from tardigrad.protocol.worker_outputs import (
    Compute,
    Forget,
    Send,
    StopComputing,
    WorkerOutput,
    WorkerTimer,
)
from tardigrad.recording.gradients import RowPart
from tardigrad.runtime.shard_process import LifeEnded, ShardOut, ShardProcess
from tardigrad.runtime.worker_process import ComputedGradient, WorkerProcess
from tests.simulation.simulated_disk import SimulatedDisk

if TYPE_CHECKING:
    from tests.simulation.simulated_cluster import SimulatedCluster
    from tests.simulation.simulated_driver import SimulatedDriver

VERSIONS_A_WORKER = 5
"""That it may compute at: releases on their way, the one it has and the one it computes at."""
UNSETTLED_LIVES = 8
"""Of a worker, where no calls are lost: it may die five times before anything comes of it, and its
driver meanwhile. Else any process may be taken for dead in the middle of each attempt to complete a
gradient, as often as a driver has patience with it."""


HANDED_OVER = 0.9
"""The part of a step's time after which its gradient is there: it is computed beside everything
else, which may go on before it is handed over."""


class Gone(Exception):
    """The process died in the middle of what it was doing."""


@dataclass(eq=False)
class SimulatedProcess:
    """Anything that can be killed or paused."""

    cluster: "SimulatedCluster"
    name: str
    host: str
    owner: "SimulatedDriver | None" = None
    alive: bool = True
    why: str = ""
    paused_until_s: float = 0.0
    disk: SimulatedDisk = field(init=False)
    number: int = -1
    """Of the shard or worker that it is."""
    torn: int | None = None
    """How many bytes of its next append get there before it dies."""

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk(self.cluster.disk, self.host, self._before_write)

    @property
    def now_s(self) -> float:
        return self.cluster.time.now_s

    @property
    def paused(self) -> bool:
        return self.paused_until_s > self.now_s

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """After so long, or when it goes on if it is paused; never if it has died."""
        self.cluster.time.after(seconds, lambda: self._do(do))

    def _do(self, do: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self.paused:
            self.at(self.paused_until_s - self.now_s, do)
            return
        with contextlib.suppress(Gone):
            do()

    def tell_moment(self, moment: str) -> None:
        """A fault may strike; what this process was about to do is not done if it dies of it."""
        self.cluster.moments.come(moment, self)
        if not self.alive:
            raise Gone

    def _before_write(self, doing: str, name: str) -> int | None:
        if doing == "torn":
            self.kill("killed in the middle of a write")
            raise Gone
        self.tell_moment(doing)
        torn, self.torn = self.torn, None
        return torn

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
    superseded: bool = False
    """Whether its driver has given it up: it promises nothing any more."""
    reached: int = 0
    """The last version that it was seen at."""

    def begin(self, shard: int, process: ShardProcess) -> None:
        self.number, self.process = shard, process
        for token, due_s in process.timers():
            self._set_timer(max(0.0, due_s - self.now_s), token)

    def _set_timer(self, seconds: float, token: int) -> None:
        self.at(seconds, lambda: self._guarded(lambda: self.process.rang(token, self.now_s)))

    def _guarded(self, do: Callable[[], Sequence[ShardOut]]) -> None:
        """Do it, and what follows; an error of the disk ends this life."""
        try:
            self._carry_out(do())
        except LifeEnded as error:
            self.kill(str(error))
        else:
            self.reached = self.process.version
            self.cluster.moments.reached(self.reached, self)
            self._check_kept()

    def _check_kept(self) -> None:
        """However long a worker hears nothing, it pins few versions; one more for each of its lives
        of which a gradient may have to be completed, and those are few."""
        assert self.owner is not None
        replica, patience = self.process.replica, self.owner.coordinator.patience
        channels = replica.session.channels.values()
        lives = [len(channel.lives_from) for channel in channels]
        lived = UNSETTLED_LIVES
        if self.cluster.network.weather.call_lost:
            lived = max(lived, patience.deaths * (len(self.owner.shards) + len(channels)))
        assert max(lives, default=0) <= lived, f"{self.name}: {lives} lives not settled"
        most = 1 + VERSIONS_A_WORKER * len(channels) + sum(lives)
        assert len(replica.sent) <= most, f"{self.name} keeps versions {sorted(replica.sent)}"

    def _carry_out(self, out: Sequence[ShardOut]) -> None:
        for item in out:
            if isinstance(item, TimerSet):
                self._set_timer(item.seconds, item.token)
            else:
                self._say(item)

    def _say(self, message: FromShard) -> None:
        assert self.owner is not None
        self.tell_moment("answers")
        self.cluster.promise(self, message)
        sent = self.process.replica.sent
        payloads = [sent[r.version] if r.carries else None for r in message.releases]
        worker = self.owner.workers.get(message.worker)
        if worker is not None:
            self.cluster.network.send(
                self.host,
                worker.host,
                lambda: worker.at(0.0, lambda: worker.hear(message, payloads)),
            )

    def hear(
        self, message: FromWorker | Hello, part: RowPart | None, encoded: Encoded | None = None
    ) -> None:
        def do() -> list[ShardOut]:
            came = part
            if encoded is not None:
                assert isinstance(message, FromWorker)
                assert isinstance(message.body, PushHeader)
                assert part is not None
                came = part._replace(grad=self.process.decoded(message.body, encoded)[0])
            return self.process.hear(message, came, self.now_s)

        self._guarded(do)

    def call(self, call: ShardCall, answer: Callable[[Any], None]) -> None:
        def do() -> list[ShardOut]:
            value, out = self.process.call(call, self.now_s)
            answer(value)
            return out

        self._guarded(do)


def _copy(payload: Any, out: Tensor) -> None:
    out.copy_(payload)


class SimulatedWorker(SimulatedProcess):
    process: WorkerProcess | None = None
    computing: Compute | None = None
    made: list[ComputedGradient | None]
    """What has come of it, if it is there."""

    def begin(self, worker: int) -> None:
        self.number = worker

    def call(self, call: WorkerCall, answer: Callable[[Any], None]) -> None:
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
                    self._carry_out(session.go_on(self.now_s))
                answer(None)
            case AskWorker():
                answer(session.status)
            case StopWork():
                session.stop()
                answer(None)
            case TakeUnsent():
                answer(self.process.unsent())
            case TakeState():
                answer(self.process.kept())

    def _begin_work(self, call: BeginWork) -> None:
        assert self.owner is not None
        self.process = WorkerProcess(self.owner.setup, call.start, _copy, kept=call.kept)
        self._carry_out(self.process.session.begin(self.now_s))
        for shard in range(self.cluster.setup.shards):
            self._say_again(shard)
        self.resending = Resending(self.process.session, self.cluster.setup.shards)
        self.at(CHECK_S, self._resend)

    def _resend(self) -> None:
        for shard in self.resending.due(self.now_s):
            self._say_again(shard)
        self.at(CHECK_S, self._resend)

    def _say_again(self, shard: int) -> None:
        assert self.process is not None
        for message in self.process.session.again(shard):
            self._send(shard, message)

    def hear(self, message: FromShard, payloads: Sequence[Any]) -> None:
        if self.process is not None:
            self.resending.heard(message.shard)
            self._carry_out(self.process.session.hear(message, payloads, self.now_s))

    def _carry_out(self, out: Sequence[WorkerOutput]) -> None:
        assert self.process is not None
        for item in out:
            match item:
                case Send(shard, message):
                    self._send(shard, message)
                case Compute():
                    self.process.load(item)
                    step_s = self.cluster.step_s(self.number)
                    self.computing, self.made = item, []
                    self.at(HANDED_OVER * step_s, partial(self._compute, item))
                    self.at(step_s, partial(self._computed, item))
                case StopComputing():  # heard between two batches, or when it is done
                    self.at(
                        self.cluster.step_s(self.number), partial(self._computed, self.computing)
                    )
                case Forget():
                    self.process.forget(item)
                case WorkerTimer(seconds, token):
                    self.at(seconds, partial(self._rang, token))

    def _compute(self, compute: Compute) -> None:
        assert self.process is not None
        if compute is self.computing:
            self.made = [self.process.gradient(compute)]

    def _computed(self, compute: Compute | None) -> None:
        assert self.process is not None
        if compute is None or compute is not self.computing:
            return  # it was interrupted
        self.computing = None
        (computed,) = self.made or (self.process.gradient(compute),)
        self._carry_out(self.process.computed(compute, computed, self.now_s, self.now_s))

    def _rang(self, token: int) -> None:
        assert self.process is not None
        self._carry_out(self.process.session.timer(token, self.now_s))

    def _send(self, shard: int, message: FromWorker | Hello) -> None:
        assert self.owner is not None
        assert self.process is not None
        part, encoded = None, None
        if isinstance(message, FromWorker):
            self.tell_moment(f"sends {type(message.body).__name__}")
            if isinstance(message.body, PushHeader):
                part = self.process.part(message.body, shard)
                encoded = self.process.encoded(message.body, shard)
        target = self.owner.shards.get(shard)
        if target is not None:
            self.cluster.network.send(
                self.host,
                target.host,
                lambda: target.at(0.0, lambda: target.hear(message, part, encoded)),
            )
