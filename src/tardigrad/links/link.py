"""What crosses the wire: the interface between links and the event loop.

A link is a gate and a codec. Its gate decides, for every push and every reply, whether its bytes
cross; its codec in which form pushes do (`codec`). Headers always travel, so
policies count opportunities, not bytes: a shard hears of every gradient, and a worker of every
version, also where the tensors stay behind.

- A *reply without parameters*: the worker computes on with the view it has, and the version of its
  view does not advance.
- A *push without its gradient*: see `Link.on_drop`.

A worker's first push to a shard always goes, so that there is something to apply.

On Ray the gate for pushes is at the worker, and the one for replies at the shard, which goes by the
deviations that the worker told with its last push.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal

from tardigrad.links.codec import Codec
from tardigrad.links.identity import AS_THEY_ARE

UNSENT = "unsent"
"""Why a gradient is dropped that waited for a push that crosses, when its worker has gone."""

OnDrop = Literal["reapply", "average"]
ON_DROP = ("reapply", "average")


class Gate(ABC):
    """One realisation of a link, asked once per opportunity, in the order they come.

    `heard` is, per shard, the deviation v̄ that the worker last heard: it rides on every reply, also
    on one without parameters, and is 1 before the first.
    """

    @abstractmethod
    def push(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        """Whether this gradient's slice crosses."""

    @abstractmethod
    def pull(self, worker: int, shard: int, heard: Sequence[float]) -> bool:
        """Whether this reply carries the shard's parameters."""


class Link(ABC):
    """What crosses the wire: a frozen dataclass."""

    reads_deviation: ClassVar[bool] = False
    """Whether decisions depend on tensors, so that schedule and execution advance together."""

    unaveraged: ClassVar[str] = "a link that sends every push"
    """What to write instead where no push may be averaged into a later one."""

    on_drop: OnDrop = "average"
    """What becomes of a gradient that is not sent.

    "reapply": the server applies that worker's last transmitted gradient again, with its old
    version. "average": the worker averages it into its next push, which carries the newer view and
    version; the shard answers without an update (asynchronous policies only).

    With a codec that feeds errors back, the worker keeps all of it in either case, and adds it to
    its next push.
    """

    codec: Codec = AS_THEY_ARE
    """In which form gradients are pushed."""

    @property
    def withholds_pushes(self) -> bool:
        """Whether a push may stay behind."""
        return False

    @property
    def averages(self) -> bool:
        """Whether a push that stays behind is averaged into a later one."""
        return self.withholds_pushes and self.on_drop == "average"

    @abstractmethod
    def realise(self, seed: int, shard_bytes: Sequence[int]) -> Gate | None:
        """The decisions of one run; None where everything crosses.

        `shard_bytes`: the bytes of each shard's slice of the parameters, one way; zeros where they
        are not known (a schedule made without a task).
        """
