"""How much memory a run will need, told before it starts."""

from collections.abc import Sequence
from pathlib import Path

import torch

from tardigrad.core.checks import positive, require
from tardigrad.core.memory import physical_bytes
from tardigrad.core.trees import named
from tardigrad.engine.job import Job
from tardigrad.scheduling import Schedule
from tardigrad.tasks import Task

GIB = 2**30


def predicted_bytes(job: Job, versions: Sequence[int], batch: int) -> int:
    """Versions (so many per shard), own rows, errors and state exactly; a batch's views, gradients
    and work space by rule of thumb (three vectors a gradient)."""
    theta = job.task.start()
    total = 3 * batch * theta.numel()
    for count, part in zip(versions, job.parts(), strict=True):
        state = sum(t.numel() for t in named(job.rule.start(*part), "").values())
        own = sum(t.numel() for t in named(job.rule.start_own(*part), "").values())
        total += count * len(part.theta) + len(part.theta) + state + job.schedule.workers * own
    if job.codec.error_feedback:
        total += job.schedule.workers * theta.numel()
    return total * theta.element_size()


def check_budget(memory_gib: float | None, device: torch.device) -> int:
    """The bytes a run may take; without a budget, what the machine has left."""
    free, whole = machine_bytes(device)
    if memory_gib is None:
        return free
    positive("memory_gib", memory_gib)
    require(
        memory_gib * GIB <= whole,
        f"memory_gib = {memory_gib:g}, but this machine has {amount(whole)}",
    )
    return int(memory_gib * GIB)


def check_chunk(chunk: int | None, task: Task, budget: int) -> None:
    """A chunk whose gradients alone do not fit is refused."""
    if chunk is None:
        return
    require(
        isinstance(chunk, int) and not isinstance(chunk, bool) and chunk >= 1,
        f"chunk must be a whole number of at least 1, got {chunk!r}",
    )
    theta = task.start()
    needed = 3 * chunk * theta.numel() * theta.element_size()
    require(
        needed <= budget,
        f"chunk = {chunk} gradients at a time would take {amount(needed)} and there are "
        f"{amount(budget)}: choose a smaller chunk, or leave it out",
    )


def check_memory(needed: int, budget: int, schedule: Schedule) -> None:
    require(
        needed <= budget,
        f"the run would take {amount(needed)}, mostly views of {schedule.workers} workers, "
        f"and there are {amount(budget)}: use fewer workers, a smaller model or float32",
    )


def machine_bytes(device: torch.device) -> tuple[int, int]:
    """(left, in all) on the device."""
    if device.type == "cuda":
        free, whole = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + kept, int(whole)  # torch keeps what was freed, for the next who asks
    whole = physical_bytes()
    free = whole
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
    limit = Path("/sys/fs/cgroup/memory.max")
    used = Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and limit.read_text().strip().isdigit():
        whole = min(whole, int(limit.read_text()))
        free = min(free, whole - int(used.read_text()))
    return free, whole


def amount(size: int) -> str:
    """Bytes as people read them."""
    for unit, name in ((GIB, "GiB"), (2**20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size / 1024:.1f} KiB"
