"""Why a faster way cannot be taken, for whoever falls back to a slower one."""

from typing import Literal

Reason = Literal["run", "gradients", "rule", "reduction", "compiler"]
"""What stands in the way, and who does it instead:

- "run": the schedule, a measure, the task or the device. The exact engine executes it.
- "gradients": the model's cannot be computed many in one call. They are computed one by one.
- "rule": it was not found to treat each parameter alone. Its own code makes the updates on a CPU,
  the exact engine does on a GPU, and shards that need to know refuse it.
- "reduction": as "rule", and it was seen to make fewer numbers out of several parameters.
- "compiler": there is none, or it failed. The exact engine executes the run.
"""


class Unsuited(ValueError):
    """A faster way cannot be taken; the message says why."""

    def __init__(self, why: str, reason: Reason = "run") -> None:
        super().__init__(why)
        self.reason = reason

    def __reduce__(self) -> tuple[type["Unsuited"], tuple[str, Reason]]:
        """So that it can come from another process."""
        return Unsuited, (str(self), self.reason)
