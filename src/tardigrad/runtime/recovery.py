"""Recovery: load the newest cut and live through all shards' logs from there.

A gradient's view is a composite of all shards, so one shard's log alone is not enough: every shard
is executed again, one gradient at a time, with the same `Server` objects that the actors use.
Gradients are computed, not stored; the same view and turn give the same bits. Digests in the logs
are compared on the way.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tardigrad.engine.checkpoint import load_checkpoint
from tardigrad.runtime.cut import cut_file, cuts
from tardigrad.runtime.log import Story, read_log
from tardigrad.runtime.merge import Merger
from tardigrad.runtime.messages import PushHeader
from tardigrad.runtime.server import Server
from tardigrad.runtime.setup import Setup
from tardigrad.runtime.state import make_server, refeed
from tardigrad.tasks import Gradient, Turn


class Half(NamedTuple):
    """A gradient that came to some shards only, computed again for the others."""

    push: PushHeader
    gradient: Gradient | None
    """None where it was not finite, so that only its header travels."""
    missing: tuple[int, ...]


class Recovered:
    """All shards as far as their logs tell."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        shards = range(setup.sharding.shards)
        self.stories: list[Story] = [read_log(setup.log_path(shard)) for shard in shards]
        self.servers: list[Server] = []
        positions = []
        whole = cuts(setup.folder)
        for shard in shards:
            server, position = make_server(setup, shard), 0
            if whole:
                path = cut_file(setup.folder, whole[-1].number, shard)
                tensors, facts = load_checkpoint(path)
                server.restore(tensors, facts)
                position = facts["events"]
            refeed(server.control, self.stories[shard].lines[:position])
            positions.append(position)
            self.servers.append(server)
        self._digests = [dict(story.digests) for story in self.stories]
        self._computed: dict[int, tuple[PushHeader, Gradient | None, set[int]]] = {}
        logs = [s.lines[p:] for s, p in zip(self.stories, positions, strict=True)]
        self._merger = Merger(logs, [server.shard.version for server in self.servers])
        threads = torch.get_num_threads()
        torch.set_num_threads(setup.threads)
        try:
            while turn := self._merger.next():
                for shard in turn:
                    self._relive(shard)
        finally:
            torch.set_num_threads(threads)

    def halves(self, worker: int) -> list[Half]:
        """This worker's gradients that some shards have and others have not."""
        everyone = set(range(len(self.servers)))
        found = [
            Half(push, gradient, tuple(sorted(everyone - have)))
            for push, gradient, have in self._computed.values()
            if push.worker == worker
        ]
        return sorted(found, key=lambda half: half.push.step)

    def reached_end(self, shard: int) -> bool:
        return self._merger.position[shard] == len(self._merger.logs[shard])

    def _relive(self, shard: int) -> None:
        server, line = self.servers[shard], self._merger.line(shard)
        headers = dict(server.control.rows)
        if line.event.kind == "push":
            push = PushHeader(*line.event.what)
            headers[push.row] = push
            self._arrive(shard, push)
        refeed(server.control, [line])
        for _ in server.carry_out(line.event, line.decided, headers):
            pass
        server.consumed.clear()
        self._merger.advance(shard)
        expected = self._digests[shard].get(server.shard.version)
        if expected is not None and expected != server.digest():
            raise ValueError(
                f"shard {shard}, version {server.shard.version}: executed again it has the digest "
                f"{server.digest()}, the log says {expected}. Recovery needs the kind of machine "
                "and the versions that the run began with"
            )

    def _arrive(self, shard: int, push: PushHeader) -> None:
        known = self._computed.get(push.row)
        if known is None:
            known = (push, self._gradient(push) if push.finite else None, set())
            self._computed[push.row] = known
        _, gradient, have = known
        if gradient is None:
            self.servers[shard].arrive(push, None, ())
        else:
            part = self.setup.sharding.slice(shard)
            buffers = gradient.buffers if shard == 0 else ()
            self.servers[shard].arrive(push, gradient.grad[part], buffers)
        have.add(shard)
        if len(have) == len(self.servers):
            del self._computed[push.row]

    def _gradient(self, push: PushHeader) -> Gradient:
        """At the composite of what was sent; no shard has the push yet, so all still hold it."""
        parts: Sequence[Tensor] = [
            server.sent[version] for server, version in zip(self.servers, push.read, strict=True)
        ]
        view = parts[0].clone() if len(parts) == 1 else torch.cat(list(parts))
        gradient = self.setup.task.gradient(view, Turn(push.worker, push.step, push.row))
        return gradient._replace(grad=self.setup.rule.prepare(gradient.grad))
