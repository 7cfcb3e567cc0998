"""Running a spec on Ray, and comparing that with the simulation."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.core.checks import require
from tardigrad.core.result_table import ResultTable
from tardigrad.engine import Checkpoints, Observer, Run
from tardigrad.engine.execute import check_combination
from tardigrad.engine.run import Say
from tardigrad.experiment.going_on import check_on_ray, continued
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.trusted_code import note_code
from tardigrad.links import Full
from tardigrad.recording.folder import SPEC, RunFolder, check_free
from tardigrad.recording.record import read_record
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.analysis import Summary
from tardigrad.scheduling.size import check_size

if TYPE_CHECKING:
    from tardigrad.runtime import ActorPool, Live


def run_on_ray(
    spec: Spec,
    path: str | Path,
    address: str | None = None,
    resume: bool = False,
    impose: bool = False,
    watch: "Callable[[Live], None] | None" = None,
    pool: "ActorPool | None" = None,
    say: Say | None = None,
    observers: Sequence[Observer] = (),
) -> Run:
    """Run the spec on real processes: as many workers as its cluster has, at their own speed.

    impose: make the workers keep the step times of the spec's cluster.
    say: told who died and what is waited for.
    observers: look on beside the loggers of the spec.
    """
    from tardigrad.runtime import Processes, Scenario, train
    from tardigrad.runtime.run_actors import check_room
    from tardigrad.runtime.sending import check_sendable
    from tardigrad.runtime.training import check_measured, check_seen_by_others

    path = Path(path)
    going_on = resume and path.exists()
    if going_on:
        check_on_ray(RunFolder.open(path))
        spec = continued(spec, RunFolder.open(path))
    else:
        check_free(path, resumes=True)
    cluster, task, stop = spec.make_cluster(), spec.make_task(), spec.make_stop()
    rule, policy, link, work = (
        spec.make_rule(),
        spec.make_policy(),
        spec.make_link(),
        spec.make_work(),
    )
    loggers = spec.make_loggers(path)
    check_measured(task, spec.evaluation)
    check_combination(task, rule, policy, link, work, spec.shards, spec.shard_by, simulated=False)
    timed = _timed(cluster) if impose else None
    check_size(cluster.workers, spec.updates, spec.shards, cluster.workers + spec.updates, False)
    check_sendable(task=task, rule=rule, policy=policy, link=link, work=work, cluster=timed)
    check_seen_by_others(path, spec.sync_log)
    placement = vars(spec.make_placement())
    processes = Processes(address, pool, sync_log=spec.sync_log, **placement)
    check_room(task, cluster.workers, processes)
    if stop is not None:
        stop.check(task, spec.evaluation, spec.updates, "measured")
    folder = RunFolder.open(path) if going_on else RunFolder.create(path, spec.toml(), None)
    begun = folder.record_place
    note_code(spec)
    with folder.locked() as save_spec, _kept_if_refused(folder, save_spec):
        save_spec(spec.toml())  # of a run that goes on it may be another
        return train(
            task,
            rule,
            policy,
            workers=cluster.workers,
            shards=spec.shards,
            updates=spec.updates,
            link=link,
            work=work,
            seed=spec.seed,
            shard_by=spec.shard_by,
            evaluation=spec.evaluation,
            checkpoints=Checkpoints(
                begun or path, spec.checkpoint_every or 0, resume=begun is not None
            ),
            processes=processes,
            scenario=Scenario(timed) if timed is not None else None,
            stop=stop,
            observers=[*loggers, *observers],
            about=spec.data(),
            watch=watch,
            say=say,
        )


@contextmanager
def _kept_if_refused(folder: RunFolder, save_spec: Callable[[str], None]) -> Iterator[None]:
    """The spec is the one before the block again where the run is not made longer by it: a longer
    one would be asked for from then on."""
    before, updates = (folder.path / SPEC).read_text(encoding="utf-8"), folder.spec()["updates"]
    try:
        yield
    except ValueError:
        place = folder.record_place
        if place is not None and read_record(place)["updates"] == updates:
            save_spec(before)
        raise


def compare_real(
    spec: Spec,
    path: str | Path,
    address: str | None = None,
    watch: "Callable[[Live], None] | None" = None,
    pool: "ActorPool | None" = None,
    say: Say | None = None,
) -> ResultTable:
    """The spec on real workers that keep its cluster's step times, beside the simulation.

    Without evaluations and cuts, whose time the simulation does not count.
    """
    _timed(spec.make_cluster())
    require(
        spec.make_link() == Full(),
        f"link = {dict(spec.link)} holds messages back, but the comparison is of runs in which all "
        "cross: leave it out",
    )
    check_free(Path(path))
    spec = replace(spec, evaluate_every=0, checkpoint_every=0)
    real = run_on_ray(spec, path, address, impose=True, watch=watch, pool=pool, say=say).schedule
    network = {"latency_s": message_s(real)}
    with_messages = replace(spec, cluster={**spec.cluster, "network": network})
    predicted, delayed = spec.make_schedule(), with_messages.make_schedule()
    assert predicted is not None  # the link is Full
    assert delayed is not None
    return real_beside_simulated(predicted, delayed, real)


def message_s(measured: Schedule) -> float:
    """How long a message took on average: a push, from the end of an update's last gradient to the
    update, or a pull, from an update to the first gradient that starts from it. The shorter of the
    two, because a policy may wait in one of them: a shard for a timer, a worker for its gradient.
    """
    end = np.maximum.reduceat(measured.end_s[measured.group_rows], measured.group_start[:-1])
    push = float(np.mean(measured.group_time_s - end))
    mine = np.nonzero(measured.group_shard == 0)[0]
    version = measured.read[:, 0]
    made = (version > 0) & np.isfinite(measured.start_s)
    late = measured.start_s[made] - measured.group_time_s[mine[version[made] - 1]]
    first = np.full(len(mine) + 1, np.inf)
    np.minimum.at(first, version[made], late)
    pull = float(np.mean(first[np.isfinite(first)])) if made.any() else push
    return max(0.0, min(push, pull))


def real_beside_simulated(
    predicted: Schedule, with_messages: Schedule, measured: Schedule
) -> ResultTable:
    """Speed, waiting and delays of three schedules of one spec: simulated with messages that take
    no time, with messages that take what they took, and what happened."""
    all_three = (predicted, with_messages, measured)
    made = [Summary.of(schedule) for schedule in all_three]
    rows = [
        _row("gradients per second", *(s.gradients_per_s for s in made)),
        _row("updates per second", *(s.updates_per_s for s in made)),
        _row("share of time waiting", *(s.waiting for s in made)),
        _row("share of gradients dropped", *(s.dropped for s in made)),
        _row("mean delay", *(s.delay.mean for s in made)),
    ]
    for delay, shares in enumerate(_histograms(*all_three)):
        if max(shares) >= 0.005:
            rows.append(_row(f"delay {delay}", *shares))
    return ResultTable(
        title="predicted by the simulation, measured on Ray",
        columns=(
            "quantity",
            "predicted",
            "with messages",
            "measured",
            "measured / predicted",
            "measured / with messages",
        ),
        rows=tuple(rows),
        notes=(
            f"{measured.updates} updates, {measured.workers} workers, {measured.shards} shards; "
            "delay d: the share of applied gradients that were d updates late",
            "with messages: simulated again with messages that take as long as the run's, "
            f"{1000 * message_s(measured):.2f} ms each way",
        ),
    )


def _row(
    name: str, predicted: float, with_messages: float, measured: float
) -> tuple[str, float, float, float, float | None, float | None]:
    ratio, other = (measured / p if p else None for p in (predicted, with_messages))
    return name, predicted, with_messages, measured, ratio, other


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
