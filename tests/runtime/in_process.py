"""A cluster in one process: real control, servers, logs and pull halves, and a keyed network.

Messages wait in per-channel queues; which channel delivers next is drawn by key, so every order
that a network may produce can come up, and the same seed gives the same run.
"""

from collections import deque
from functools import partial

import numpy as np

from tardigrad.core import keys
from tardigrad.core.layout import Sharding
from tardigrad.policies import Request, SetTimer, Start
from tardigrad.runtime.log import Log
from tardigrad.runtime.messages import Event, PushHeader, Released, Ticket, Timed
from tardigrad.runtime.setup import Setup
from tardigrad.runtime.state import make_server
from tardigrad.tasks import Turn


def make_setup(task, rule, policy, folder, workers=3, shards=2, updates=40, **more):
    sharding = Sharding.divide(task.layout, shards)
    return Setup(
        run=1,
        task=task,
        rule=rule,
        policy=policy,
        sharding=sharding,
        workers=workers,
        updates=updates,
        folder=folder,
        began_s=0.0,
        **more,
    )


class ModelWorker:
    def __init__(self, cluster, worker):
        setup = cluster.setup
        self.cluster, self.worker = cluster, worker
        self.half = setup.policy.pull_half(setup.sharding.shards)
        self.view = setup.task.start()
        self.step, self.row, self.next_row = 0, -1, worker
        self.heard = [0] * setup.sharding.shards
        self.fresh = {}
        self.begun = None

    def do(self, commands):
        for command in commands:
            if isinstance(command, Start):
                self.begun = (command.stamp, tuple(self.half.have), self.fresh)
                self.fresh = {}
            elif isinstance(command, Request):
                self.cluster.to_shard(
                    command.shard, self.worker, "request", (self.worker, command.at_least)
                )
            elif isinstance(command, SetTimer):
                self.cluster.timers.append(partial(self.ring, command.token))

    def ring(self, token):
        self.do(self.half.timer(token, 0.0))

    def hear(self, shard, item, vector):
        if isinstance(item, Ticket):
            self.next_row = max(self.next_row, item.row)
            return
        assert item.sequence == self.heard[shard] + 1
        self.heard[shard] = item.sequence
        self.next_row = max(self.next_row, item.row)
        before = self.half.have[shard]
        if item.version == self.cluster.setup.updates:
            self.half.ended(shard)
        commands = self.half.pulled(shard, item.version, 0.0)
        if self.half.have[shard] == item.version >= before:
            self.fresh[shard] = vector
        self.do(commands)

    def compute(self):
        """Finish the gradient that was begun, and push it; False while its row is unknown."""
        setup = self.cluster.setup
        if self.next_row <= self.row:
            self.cluster.to_shard(0, self.worker, "ticket", (self.worker,))
            return
        stamp, read, fresh = self.begun
        self.begun = None
        for shard, vector in fresh.items():
            self.view[setup.sharding.slice(shard)] = vector
        self.row = self.next_row
        loss, grad, _ = setup.task.gradient(self.view, Turn(self.worker, self.step, self.row))
        grad = setup.rule.prepare(grad)
        self.do(self.half.finished(0.0))
        now = float(self.cluster.now)
        for shard in range(setup.sharding.shards):
            push = PushHeader(
                self.row, self.worker, self.step, stamp, read, now, now, float(loss), True,
                self.heard[shard],
            )  # fmt: skip
            part = grad[setup.sharding.slice(shard)].clone()
            self.cluster.to_shard(shard, self.worker, "push", tuple(push), part)
        self.step += 1


class Cluster:
    """Runs until every shard is done; `after_event(cluster)` looks on."""

    def __init__(self, setup, seed=0, after_event=None):
        self.setup = setup
        self.now = 0
        shards = range(setup.sharding.shards)
        self.servers = [make_server(setup, shard) for shard in shards]
        self.logs = [Log(setup.log_path(shard)) for shard in shards]
        self.events = [0] * len(self.servers)
        self.channels = {}
        self.timers = []
        self.workers = [ModelWorker(self, w) for w in range(setup.workers)]
        self.after_event = after_event or (lambda cluster: None)
        self._stream = keys.key(seed, "network")

    def to_shard(self, shard, worker, kind, what, grad=None):
        self.channels.setdefault(("up", worker, shard), deque()).append((kind, what, grad))

    def run(self):
        for worker in self.workers:
            worker.do(worker.half.begin())
        while not all(server.control.done for server in self.servers):
            self._one()
        for log in self.logs:
            log.close()

    def _one(self):
        choices = [key for key, queue in self.channels.items() if queue]
        choices += [("compute", w.worker) for w in self.workers if w.begun]
        choices += [("timer", i) for i in range(len(self.timers))]
        assert choices, "nothing can happen any more"
        self.now += 1
        drawn = int(keys.integers(self._stream, np.array([self.now]), len(choices))[0])
        kind, *where = choices[drawn]
        if kind == "compute":
            self.workers[where[0]].compute()
        elif kind == "timer":
            self.timers.pop(where[0])()
        elif kind == "down":
            item, vector = self.channels[kind, *where].popleft()
            self.workers[where[0]].hear(where[1], item, vector)
        else:
            event, what, grad = self.channels[kind, *where].popleft()
            self.handle(where[1], Event(event, float(self.now), what), grad)

    def ring(self, shard, token):
        self.handle(shard, Event("timer", float(self.now), (token,)))

    def handle(self, shard, event, grad=None):
        server = self.servers[shard]
        headers = dict(server.control.rows)
        if event.kind == "push":
            push = PushHeader(*event.what)
            server.control.check(push)
            headers[push.row] = push
            server.arrive(push, grad, ())
        decided = server.control.decide(event)
        self.logs[shard].event(event, decided)
        self.events[shard] += 1
        for item in server.carry_out(event, decided, headers):
            vector = server.sent[item.version] if isinstance(item, Released) else None
            queue = self.channels.setdefault(("down", item.worker, shard), deque())
            queue.append((item, vector))
        for item in decided:
            if isinstance(item, Timed):
                self.timers.append(partial(self.ring, shard, item.token))
        server.consumed.clear()
        self.after_event(self)


def same_state(server, other):
    """Whether two servers are the same to the last bit."""
    mine, theirs = server.tensors(), other.tensors()
    return (
        server.facts() == other.facts()
        and mine.keys() == theirs.keys()
        and all(np.array_equal(mine[name].numpy(), theirs[name].numpy()) for name in mine)
    )
