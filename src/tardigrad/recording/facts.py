"""What the bits of a run depend on, recorded with it, so that a replay can refuse or explain."""

import platform
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch

from tardigrad.core.checks import require
from tardigrad.core.computer import processor
from tardigrad.core.used_code import changes, used_code
from tardigrad.core.version import __version__
from tardigrad.engine import Shard
from tardigrad.links import Codec, Link, that_codes
from tardigrad.policies import Policy
from tardigrad.recording.replica import tensor_digest
from tardigrad.rules import Rule
from tardigrad.tasks import Task
from tardigrad.tasks.precision import device_facts
from tardigrad.tasks.samples import tensors_in
from tardigrad.work import AnyWork, OneGradient

NAMES = {
    "instruction_set": "another instruction set",
    "torch": "another torch version",
    "numpy": "another numpy version",
    "machine": "another kind of machine",
    "processor": "another processor",
    "device": "another device",
    "data": "another data set",
    "start": "other initial parameters",
    "threads": "another thread count",
}
HARDWARE = ("instruction_set", "machine", "processor")
"""Nothing but the last bits depends on these: a run can go on where they differ."""


def facts_of(
    task: Task,
    rule: Rule,
    threads: int,
    work: AnyWork | None = None,
    codec: Codec | None = None,
) -> dict[str, Any]:
    """`code` is what gradients and updates are computed by."""
    return {
        "tardigrad": __version__,
        "code": used_code(task, rule, work or OneGradient(), Shard, *that_codes(codec)),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "machine": platform.machine(),
        "processor": processor(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "device": device_facts(task.start().device),
        "threads": threads,
        "start": tensor_digest(task.start()),
        "data": data_digest(task),
    }


def policy_facts(*parts: Policy | Link) -> dict[str, Any]:
    """Compared where a run goes on; a replay asks neither policy nor link, whose decisions are in
    the schedule."""
    return {"policy_code": used_code(*parts)}


def check_facts(
    recorded: dict[str, Any], here: dict[str, Any], instead: str, but: Collection[str] = ()
) -> None:
    """Refuse where anything differs that bits depend on, and say what, and what to do `instead`.

    A fact that an earlier version did not record is not compared, nor one of `but`.
    """
    different = [
        f"{name} (recorded {recorded[field]}, here {here.get(field)})"
        for field, name in NAMES.items()
        if field in recorded and field not in but and recorded[field] != here.get(field)
    ]
    for field in ("code", "policy_code"):
        before, now = recorded.get(field), here.get(field)
        if isinstance(before, dict) and now is not None:
            different += [f"other code ({change})" for change in changes(before, now)]
        elif isinstance(before, str):
            different.append(
                f"tardigrad {recorded.get('tardigrad')}, which did not note the code it used file "
                "by file, so that it cannot be compared"
            )
    require(
        not different,
        f"this run was recorded with {', with '.join(different)}: the same bits cannot be "
        f"expected. {instead}",
    )


def check_computers(computers: Sequence[str], here: str, instead: str) -> None:
    """Refuse where a run was computed on others than this one."""
    require(
        all(one == here for one in computers),
        f"this run was computed on {' and on '.join(computers)}, and this is {here}: the same bits "
        f"cannot be expected. {instead}",
    )


def data_digest(task: Task) -> str | None:
    """Of the training data, where the task has any."""
    data = getattr(task, "data", None)
    if data is None:
        return None
    tensors = (*tensors_in(data.train.inputs), *tensors_in(data.train.targets))
    return "-".join(tensor_digest(tensor) for tensor in tensors)
