"""Running a spec on Ray, replaying what was recorded, and comparing it with the simulation."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tardigrad.checks import require
from tardigrad.clusters import TimedCluster
from tardigrad.engine import Diverged, Run
from tardigrad.findings import Findings
from tardigrad.folder import PARAMS, RunFolder, check_free
from tardigrad.links import Full
from tardigrad.schedule import Schedule
from tardigrad.schedule.analysis import Summary
from tardigrad.spec.run import check_same, save_params, summarise
from tardigrad.spec.spec import Spec

if TYPE_CHECKING:
    from tardigrad.runtime import Crew, Live, Replayed

RAY = "ray"
"""Where in a run's folder the logs, cuts and the record of a run on Ray are."""


def run_on_ray(
    spec: Spec,
    path: Path,
    address: str | None = None,
    resume: bool = False,
    impose: bool = False,
    watch: "Callable[[Live], None] | None" = None,
    crew: "Crew | None" = None,
) -> Run:
    """Run the spec on real processes: as many workers as its cluster has, at their own speed.

    impose: make the workers keep the step times of the spec's cluster.
    """
    from tardigrad.runtime import train

    require(
        not spec.measures,
        f"measures = {list(spec.measures)} need every view at hand, which no process of a cluster "
        "has: leave them out",
    )
    require(
        spec.make_link() == Full(),
        f"link = {dict(spec.link)} is simulated only: on Ray everything crosses; leave it out",
    )
    going_on = resume and path.exists()
    if going_on:
        check_same(spec, RunFolder.open(path))
    else:
        check_free(path)
    cluster, task = spec.make_cluster(), spec.make_task()
    folder = RunFolder.open(path) if going_on else RunFolder.create(path, spec.toml(), None)
    started = time.perf_counter()
    with folder.locked():
        try:
            done = train(
                task,
                spec.make_rule(),
                spec.make_policy(),
                workers=cluster.workers,
                shards=spec.shards,
                updates=spec.updates,
                shard_by=spec.shard_by,
                address=address,
                folder=path / RAY,
                resume=going_on and (path / RAY / "record.json").exists(),
                impose=_timed(cluster) if impose else None,
                seed=spec.seed,
                evaluate_every=spec.evaluate_every or 0,
                splits=spec.splits,
                cut_every=spec.checkpoint_every or 0,
                watch=watch,
                crew=crew,
            )
        except (Diverged, KeyboardInterrupt) as stop:
            status = "diverged" if isinstance(stop, Diverged) else "stopped"
            folder.write_results([], {"status": status, "why": str(stop)})
            raise
        folder.save_schedule(done.schedule)
        save_params(path / PARAMS, done, task.layout)
        summary = summarise(done, time.perf_counter() - started)
        folder.write_results(done.history.records, {**summary, "on": RAY})
    return done


def replay_run(
    path: Path, until: int | None = None, checkpoint: Path | None = None, force: bool = False
) -> "Replayed":
    """Execute again what a run on Ray recorded in its folder."""
    from tardigrad.runtime import read_record, replay

    folder = RunFolder.open(path)
    record = read_record(path / RAY)
    require(record["finished"], f"the run in {path} has not finished: go on with it (--resume)")
    spec = Spec.of(folder.spec())
    task, rule = spec.make_task(), spec.make_rule()
    return replay(folder.schedule(), task, rule, record, until, checkpoint, force)


def compare_real(
    spec: Spec, path: Path, address: str | None = None, crew: "Crew | None" = None, **options: Any
) -> Findings:
    """The spec on real workers that keep its cluster's step times, beside the simulation.

    Without evaluations and cuts, whose time the simulation does not count.
    """
    _timed(spec.make_cluster())
    spec = replace(spec, evaluate_every=0, checkpoint_every=0)
    real = run_on_ray(spec, path, address, impose=True, crew=crew, **options).schedule
    predicted = spec.make_schedule()
    assert predicted is not None  # the link is Full
    return side_by_side(predicted, real)


def side_by_side(predicted: Schedule, measured: Schedule) -> Findings:
    """Speed, waiting and delays of two schedules of one spec."""
    plan, real = Summary.of(predicted), Summary.of(measured)
    rows: list[tuple[str, float, float, float | None]] = [
        _row("gradients per second", plan.gradients_per_s, real.gradients_per_s),
        _row("updates per second", plan.updates_per_s, real.updates_per_s),
        _row("share of time waiting", plan.waiting, real.waiting),
        _row("share of gradients dropped", plan.dropped, real.dropped),
        _row("mean delay", plan.delay.mean, real.delay.mean),
    ]
    for delay, (a, b) in enumerate(_histograms(predicted, measured)):
        if max(a, b) >= 0.005:
            rows.append(_row(f"delay {delay}", a, b))
    return Findings(
        title="predicted by the simulation, measured on Ray",
        columns=("", "predicted", "measured", "measured / predicted"),
        rows=tuple(rows),
        notes=(
            f"{measured.updates} updates, {measured.workers} workers, {measured.shards} shards; "
            "delay d: the share of applied gradients that were d updates late",
        ),
    )


def _row(name: str, predicted: float, measured: float) -> tuple[str, float, float, float | None]:
    return name, predicted, measured, measured / predicted if predicted else None


def _histograms(*schedules: Schedule) -> list[tuple[float, ...]]:
    """The share of each delay, in every schedule."""
    most = max(int(s.delays.max(initial=0)) for s in schedules)
    shares = [[float((s.delays == d).mean()) for d in range(most + 1)] for s in schedules]
    return list(zip(*shares, strict=True))


def _timed(cluster: Any) -> TimedCluster:
    require(
        isinstance(cluster, TimedCluster) and cluster.undisturbed,
        "only a cluster's step times can be imposed on real workers: use a cluster with times and "
        "without network or absences, such as gamma",
    )
    timed: TimedCluster = cluster
    return timed
