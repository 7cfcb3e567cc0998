"""`tardigrad plan`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tomli_w
import typer

from tardigrad.cli.console import out
from tardigrad.cli.show import show
from tardigrad.clusters import CLUSTERS, TimedCluster, Trace
from tardigrad.core.checks import require
from tardigrad.core.own_code import located
from tardigrad.engine import simulate
from tardigrad.engine.result_files import write
from tardigrad.experiment import Spec, changed, read_toml
from tardigrad.experiment.spec import CLUSTER, LINK, STRUCTURE
from tardigrad.links import Full
from tardigrad.planning.advice import Plan, advise
from tardigrad.planning.figures import draw_plan
from tardigrad.planning.measure import label
from tardigrad.planning.needed import Needed, measured_needed
from tardigrad.planning.tables import collect_table, policies_table, speedup_table, splits_table
from tardigrad.policies import POLICIES, Async

TASK = {"name": "mnist_mlp", "batch_size": 8}


def plan(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A spec, a TOML file with [cluster] alone, or a CSV of step times."
        ),
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Changes to it, such as cluster.workers=64."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", help="How many machines there are in all.")
    ] = None,
    needed: Annotated[
        Path | None,
        typer.Option(help="CSV of workers,updates: updates needed with so many gradients each."),
    ] = None,
    target: Annotated[
        float | None,
        typer.Option(help="Measure that instead: train the spec in step down to this batch loss."),
    ] = None,
    gradients: Annotated[
        int,
        typer.Option(
            "--gradients",
            help="How many gradients each policy is simulated for: a fifth of them over a network "
            "or with absences, and 20 a worker in any case.",
        ),
    ] = 20_000,
    async_gain: Annotated[
        float, typer.Option(help="How much faster asynchrony must be to be worth its staleness.")
    ] = 1.5,
    to: Annotated[Path | None, typer.Option("--out", help="The folder [plans/NAME].")] = None,
) -> None:
    """Say what to run on a cluster, from its times alone: no tensors, in seconds.

    Every policy's gradients per second, waiting, staleness and drops; when the k-th gradient comes;
    how many machines should be backups; what asynchrony would bring. All of it is measured in
    simulated schedules with the file's shards, network, absences and seed. The folder gets a figure
    and recommended.toml, an experiment ready to run from anywhere.
    """
    data = _data(file, changes or (), workers)
    cluster = STRUCTURE.named(CLUSTER, "cluster", data["cluster"])
    require(
        isinstance(cluster, TimedCluster),
        "a plan is about time, and a dispatcher has none: use a cluster with times, such as gamma",
    )
    require(
        isinstance(STRUCTURE.named(LINK, "link", data.get("link", "full")), Full),
        "a plan compares policies where every message is sent whole: plan with link=full, and put "
        "the link into what is recommended",
    )
    require(
        needed is None or target is None,
        "--needed gives the updates needed and --target measures them: use one of the two",
    )
    table = Needed.load(needed) if needed else None
    if target is not None:
        table = _measured(data, cluster.workers, target)
    found = advise(
        cluster, table, gradients, data.get("shards", 1), data.get("seed", 0), async_gain
    )
    spec = recommended(found, data)
    folder = to or Path("plans") / file.stem
    folder.mkdir(parents=True, exist_ok=True)
    draw_plan(found, folder / "plan.png", f"{file.name}: {cluster.workers} workers")
    tables = [policies_table(found), collect_table(found), splits_table(found)]
    if len(found.speedups) > 1:
        tables.append(speedup_table(found))
    for one in tables:
        show(one)
    words = f"{label(found.policy)}: {found.why}"
    write(folder / "recommended.toml", f"# {words}\n{tomli_w.dumps(spec)}")
    out.print(f"recommended: {words}", markup=False)
    out.print(f"figure: {folder / 'plan.png'}", markup=False)
    out.print(f"run it: tardigrad run {folder / 'recommended.toml'}", markup=False)


def recommended(plan: Plan, data: Mapping[str, Any]) -> dict[str, Any]:
    """The experiment as a checked spec: what the file says, with the policy chosen.

    What it does not say is MNIST, with a rule that suits the policy.
    """
    asynchronous = isinstance(plan.policy, Async)
    rule = {"name": "gap_aware", "lr": 0.01} if asynchronous else {"name": "sgd", "lr": 0.04}
    updates = data.get("updates")
    if updates is None or plan.needed != Needed():
        # An asynchronous update has one gradient, so that it takes more of them for as many.
        each = plan.split.gradients if asynchronous else 1
        updates = max(1, round(plan.split.updates * each))
    spec: dict[str, Any] = {"task": dict(TASK), "rule": rule, **data}
    spec |= {"updates": updates, "policy": _section(plan.policy, POLICIES)}
    spec["cluster"] = _cluster(plan.setting.cluster, data)
    if isinstance(plan.setting.cluster, Trace):  # a relative path means another file elsewhere
        spec["cluster"]["path"] = str(Path(plan.setting.cluster.path).resolve())
    Spec.of(spec)
    return {"updates": spec.pop("updates"), **spec}


def _data(file: Path, changes: Sequence[str], workers: int | None) -> dict[str, Any]:
    if file.suffix == ".csv":
        data: dict[str, Any] = {"cluster": {"name": "trace", "path": str(file)}}
        Trace(path=str(file))
    else:
        data = read_toml(file)
    if workers is not None:
        changes = [*changes, f"cluster.workers={workers}"]
    data = changed(data, changes)
    require("cluster" in data, f"{file} has no [cluster]: say there what the step times are")
    return data


def _measured(data: Mapping[str, Any], workers: int, target: float) -> Needed:
    spec = Spec.of(data)

    def losses(n: int) -> Sequence[float]:
        step = {"name": "constant", "workers": n}
        sized = replace(spec, cluster=step, policy={"name": "sync"}, shards=1)
        run = simulate(
            sized.make_task(),
            sized.make_rule(),
            policy=sized.make_policy(),
            cluster=sized.make_cluster(),
            updates=sized.updates,
            seed=sized.seed,
        )
        return run.history.loss

    return measured_needed(losses, workers, target)


def _cluster(cluster: TimedCluster, data: Mapping[str, Any]) -> dict[str, Any]:
    """Its section; one of the user's own as the file has it, with the number of workers."""
    if type(cluster) in CLUSTERS.values():
        return _section(cluster, CLUSTERS)
    said = data["cluster"]
    own: dict[str, Any] = {"name": said} if isinstance(said, str) else dict(said)
    if cluster.workers != STRUCTURE.named(CLUSTER, "cluster", own).workers:
        own["workers"] = cluster.workers
    located_own: dict[str, Any] = located(own, Path.cwd())
    return located_own


def _section(thing: Any, registry: Mapping[str, type]) -> dict[str, Any]:
    """A policy or cluster as a section of a spec: what differs from the defaults."""
    name = next(name for name, kind in registry.items() if kind is type(thing))
    defaults = {f.name: f.default for f in fields(thing)}
    said = {k: v for k, v in vars(thing).items() if k in defaults and v != defaults[k]}
    return {"name": name, **{key: _plain(value) for key, value in said.items()}}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {k: _plain(v) for k, v in asdict(value).items() if v is not None and v != ()}
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None and v != ()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
