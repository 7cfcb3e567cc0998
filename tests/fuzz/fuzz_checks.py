"""What every case must satisfy: its schedule, both engines, resuming, other numbers of shards."""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import tardigrad as tg
from tardigrad.clusters import TimedCluster
from tardigrad.scheduling import traffic
from tests.fuzz.fuzz_case import FEW_UPDATES, FEW_WORKERS, Case
from tests.fuzz.fuzz_schedule import Facts, check_schedule, unwrapped
from tests.fuzz.fuzz_steps import check_steps

CLOSE = 1e-9
"""How far apart the engines may be in float64, relative to the largest parameter."""

FAR = 1e6
"""Parameters so large have left every task behind: their last bits decide what comes next."""

Start = Callable[..., tg.Run]
"""Makes the case's run; takes the options of `execute`."""


class Interrupted(Exception):
    """The run was stopped from outside."""


def check_case(case: Case, folder: Path) -> str:
    """All of it; the answer is what became of the case, for the table."""
    with nullcontext() if case.compiled else uncompiled():
        try:
            schedule = None if case.link.reads_deviation else made(case)
        except ValueError as error:
            check_refusal(case, str(error))
            return "cannot end"
        if schedule is not None:
            check_schedule(case, schedule)
            check_steps(case, schedule)
            check_file(schedule, folder)
            check_bulk(case, schedule)
            check_traffic(case, schedule)
        try:
            return check_runs(case, schedule, folder)
        except ValueError as error:
            if schedule is not None:
                raise
            check_refusal(case, str(error))
            return "cannot end"


def made(case: Case, **options: Any) -> tg.Schedule:
    parts = (case.policy, case.cluster, case.updates, case.seed, case.shards, case.link)
    return tg.schedule(*parts, **{"batches": case.made_work.batches, **options})


def check_refusal(case: Case, message: str) -> None:
    """A valid case is refused only where no run could end, which is told from the case."""
    cluster = case.cluster
    assert isinstance(cluster, TimedCluster), message
    (time_s,) = re.findall(r"after time ([\d.e+-]+)", message)
    if "all workers are gone" in message:
        last = {absence.worker: absence for absence in cluster.absences}
        assert set(last) == set(range(cluster.workers)), message
        assert all(a.leaves_s <= float(time_s) * (1 + 1e-5) for a in last.values()), message
    elif "have stopped for good" in message:
        assert cluster.network is not None, message
        assert any(outage.returns_s is None for outage in cluster.network.outages), message
    else:
        # As `SoftSync` says: waiting workers may all wait for different shards.
        base, _, _ = unwrapped(case.policy)
        assert isinstance(base, tg.SoftSync), message
        assert base.wait, message
        size = base.group_size(cluster.workers)
        assert (size - 1) * case.shards >= cluster.workers, message


def check_file(schedule: tg.Schedule, folder: Path) -> None:
    path = folder / "schedule.safetensors"
    schedule.save(path)
    loaded = tg.Schedule.load(path)
    assert loaded == schedule
    assert loaded.digest == schedule.digest


def check_bulk(case: Case, schedule: tg.Schedule) -> None:
    assert made(case, bulk=False) == schedule, "the closed form is the event loop's schedule"


def check_traffic(case: Case, schedule: tg.Schedule) -> None:
    """A link that lets everything through, and records it, finds the same schedule and traffic."""
    if not isinstance(case.link, tg.Full) or case.policy.interrupts:
        return
    recorded = made(replace(case, link=tg.Every(push=1, pull=1, codec=case.link.codec)))
    for name in ("worker", "read", "group_rows", "group_shard", "group_time_s", "drop_row"):
        assert np.array_equal(getattr(schedule, name), getattr(recorded, name)), name
    sizes = [8 * (shard + 1) for shard in range(case.shards)]
    counted, written = traffic(schedule, sizes), traffic(recorded, sizes)
    assert counted.pull == written.pull, "other pulls than were sent"
    # A push is counted when a shard has decided on it, and recorded when it is sent.
    assert counted.push.sent <= written.push.sent


def check_runs(case: Case, schedule: tg.Schedule | None, folder: Path) -> str:
    task, rule = case.make_task(), case.make_rule()

    def exact(**options: Any) -> tg.Run:
        if schedule is not None:
            options |= case.options | {"codec": case.link.codec}
            return tg.execute(schedule, task, rule, "exact", **options)
        parts: dict[str, Any] = {"policy": case.policy, "cluster": case.cluster, "link": case.link}
        parts |= {"updates": case.updates, "seed": case.seed, "shards": case.shards}
        return tg.simulate(task, rule, engine="exact", **parts, **case.options, **options)

    run = outcome(exact)
    same_bits(run, outcome(exact), "twice")
    same_bits(run, outcome(lambda: resumed(exact, case, folder / "exact")), "resumed")
    if isinstance(run, tg.Run):
        if schedule is None:
            check_schedule(case, run.schedule)
            check_file(run.schedule, folder)
            codec = case.link.codec
            again = tg.execute(run.schedule, task, rule, "exact", codec=codec, **case.options)
            same_bits(run, again, "executed from its schedule")
        check_shards(case, run, rule)
    schedule = run.schedule if isinstance(run, tg.Run) else schedule
    lines: list[str] = []
    if schedule is None:
        return "diverged"

    def fast(**options: Any) -> tg.Run:
        options |= case.options | {"codec": case.link.codec}
        options |= {"limits": tg.Limits(case.chunk), "say": lines.append}
        return tg.execute(schedule, task, rule, "fast", **options)

    quick = outcome(fast)
    if case.cluster.workers <= FEW_WORKERS or case.updates <= FEW_UPDATES:
        close(quick, run)
    same_bits(quick, outcome(lambda: resumed(fast, case, folder / "fast")), "resumed, fast")
    if not isinstance(run, tg.Run):
        return "diverged"
    return "fast and exact" if "engine: fast" in lines else "exact alone"


def outcome(start: Start) -> tg.Run | tg.Diverged:
    """A run, or that it diverged, which is a clear answer too."""
    try:
        return start()
    except tg.Diverged as diverged:
        return diverged


def resumed(start: Start, case: Case, folder: Path) -> tg.Run:
    """Interrupted somewhere and gone on with, from the last checkpoint before that."""
    folder.mkdir()

    def watch(tick: Any) -> None:
        if tick.updates >= case.interrupt_after:
            raise Interrupted

    saving = tg.Checkpoints(folder, case.checkpoint_every)
    with _passing(Interrupted):
        start(watch=watch, checkpoints=saving)
    return start(checkpoints=replace(saving, resume=True))


def same_bits(run: tg.Run | tg.Diverged, other: tg.Run | tg.Diverged, how: str) -> None:
    if isinstance(run, tg.Diverged) or isinstance(other, tg.Diverged):
        assert type(run) is type(other), f"{how}: {run!r} and {other!r}"
        assert str(run) == str(other) or "resumed" in how, how
        return
    assert torch.equal(run.params, other.params), f"{how}: other parameters"
    assert run.schedule == other.schedule, f"{how}: another schedule"
    assert run.traffic == other.traffic, f"{how}: other traffic"
    for name in ("loss", "gap", "b_staleness"):
        mine, theirs = (getattr(r.history, name) for r in (run, other))
        assert mine == theirs, f"{how}: another {name}"
    _same_records(run, other, 0.0, how)
    assert len(run.buffers) == len(other.buffers), how
    assert all(map(torch.equal, run.buffers, other.buffers)), f"{how}: other buffers"
    assert (run.average is None) == (other.average is None), how
    if run.average is not None and other.average is not None:
        assert torch.equal(run.average, other.average), f"{how}: another average"


def close(fast: tg.Run | tg.Diverged, exact: tg.Run | tg.Diverged) -> None:
    if isinstance(fast, tg.Diverged) or isinstance(exact, tg.Diverged):
        assert type(fast) is type(exact), f"fast: {fast!r}, exact: {exact!r}"
        return
    scale = max(1e-3, float(exact.params.abs().max()))
    if scale > FAR:
        return
    _near(fast.params, exact.params, scale, "parameters")
    assert len(fast.history.loss) == len(exact.history.loss)
    for name in ("loss", "gap", "b_staleness"):
        mine, theirs = (np.array(getattr(run.history, name)) for run in (fast, exact))
        assert np.allclose(mine, theirs, rtol=CLOSE, atol=CLOSE * scale), f"another {name}"
    assert len(fast.buffers) == len(exact.buffers)
    for ours, other in zip(fast.buffers, exact.buffers, strict=True):
        torch.testing.assert_close(ours, other, rtol=CLOSE, atol=1e-12)
    assert (fast.average is None) == (exact.average is None)
    if fast.average is not None and exact.average is not None:
        _near(fast.average, exact.average, scale, "average")
    assert fast.traffic == exact.traffic
    _same_records(fast, exact, 10 * CLOSE * max(1.0, scale), "fast")


def _near(one: torch.Tensor, other: torch.Tensor, scale: float, what: str) -> None:
    apart = float((one - other).abs().max())
    assert apart <= CLOSE * scale, f"{what} {apart / scale:.1e} apart (of the largest)"


def _same_records(run: tg.Run, other: tg.Run, tolerance: float, how: str) -> None:
    for one, two in zip(run.history.records, other.history.records, strict=True):
        assert one.keys() == two.keys(), how
        for name in one.keys() - {"wall_s"}:
            good = one[name] == two[name] or math.isclose(
                one[name], two[name], rel_tol=tolerance, abs_tol=tolerance
            )
            assert good, f"{how}: {name} is {one[name]} and {two[name]} at {one['update']}"


def check_shards(case: Case, run: tg.Run, rule: tg.Rule) -> None:
    """Where shards hear of everything at once, more of them change nothing for rules that act on
    each parameter alone."""
    facts = Facts(case, run.schedule)
    timers = isinstance(facts.base, tg.Deadline | tg.Partial | tg.Quorum)
    elementwise = case.rule.per == "parameter"
    if not elementwise or facts.network is not None or facts.pulls_part or timers:
        return
    if not facts.everything_crosses or not isinstance(case.link.codec, tg.Identity):
        return
    shards = 1 if case.shards > 1 else 2
    other = replace(case, shards=shards, shard_by="slice", measures=(), evaluate_every=0)
    divided = tg.execute(made(other), case.make_task(), rule, "exact", **other.options)
    assert torch.equal(divided.params, run.params), f"{shards} shards are not {case.shards}"


@contextmanager
def uncompiled() -> Iterator[None]:
    """Without torch's compiler the fast engine runs what it traced; all else is as ever."""
    with patch.object(torch, "compile", lambda function, **options: function):
        yield


@contextmanager
def _passing(kind: type[Exception]) -> Iterator[None]:
    try:
        yield
    except kind:
        return


COVERED: dict[str, Counter[str]] = {}
"""How often each kind of part was drawn, and what became of the cases."""


def cover(case: Case, became: str) -> None:
    for part, names in (kinds(case) | {"outcomes": [became]}).items():
        COVERED.setdefault(part, Counter()).update(names)


def kinds(case: Case) -> dict[str, list[str]]:
    """What the case is made of."""
    base, _, _ = unwrapped(case.policy)
    around_it = ("RampUp", "PartialPull", "DyLU", "stop=True")
    wrappers = [name for name in around_it if name in repr(case.policy)]
    cluster: Any = case.cluster
    network, absences = getattr(cluster, "network", None), getattr(cluster, "absences", ())
    around = ["network"] * bool(network) + ["absences"] * bool(absences)
    around += ["outages"] * bool(network and network.outages)
    codec = case.link.codec
    return {
        "policies": [type(base).__name__, *wrappers],
        "clusters": [type(cluster).__name__, *around],
        "links": [type(case.link).__name__],
        "codecs": [type(codec).__name__, *["error feedback"] * codec.error_feedback],
        "works": [case.work.name],
        "shards": [f"{case.shards} by {case.shard_by}"],
        "rules": [case.rule.name, *case.rule.common],
        "tasks": [case.task.get("layer") or case.task.get("loss") or case.task["kind"]],
    }
