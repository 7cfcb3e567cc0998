"""What a plan recommends, as an experiment ready to run."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from tardigrad.clusters import CLUSTERS, TimedCluster, Trace
from tardigrad.clusters.shipped import TRACES
from tardigrad.core.own_code import located
from tardigrad.experiment import Spec
from tardigrad.experiment.spec import CLUSTER, STRUCTURE
from tardigrad.links import CODECS, Identity
from tardigrad.planning.advice import Plan
from tardigrad.planning.entrants import Entrant
from tardigrad.planning.goal import Target
from tardigrad.planning.needed import Needed
from tardigrad.policies import POLICIES, Async

TASK = {"name": "mnist_mlp", "batch_size": 8}
LONGER = 1.5
"""What is recommended may take so many times the updates that it took in the plan."""
EVALUATIONS = 100


def recommended(plan: Plan, data: Mapping[str, Any]) -> dict[str, Any]:
    """By times alone: what the file says, with the policy chosen.

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
    spec |= {"updates": updates, "policy": section(plan.policy, POLICIES)}
    return _checked(spec, plan.setting.cluster, data)


def recommended_run(
    winner: Entrant, target: Target, cluster: TimedCluster, data: Mapping[str, Any]
) -> dict[str, Any]:
    """By training: what the file says, with the policy, rule and rate chosen; it ends when the
    target is reached."""
    candidate = winner.candidate
    most = max(point.updates for point in winner.reached)
    updates = max(1, round(LONGER * most))
    stop = {**data.get("stop", {}), target.what: target.value}
    spec = {**data, "updates": updates, "policy": section(candidate.policy, POLICIES)}
    spec |= {"rule": dict(candidate.rule), "stop": stop}
    if candidate.work:
        spec["work"] = dict(candidate.work)
    codec = candidate.measured.codec
    if not isinstance(codec, Identity):
        spec["link"] = {"codec": section(codec, CODECS)}
    spec["evaluate_every"] = max(1, updates // EVALUATIONS)
    return _checked(spec, cluster, data)


def section(thing: Any, registry: Mapping[str, type]) -> dict[str, Any]:
    """A policy, cluster or codec as a section of a spec: what differs from the defaults."""
    name = next(name for name, kind in registry.items() if kind is type(thing))
    defaults = {f.name: f.default for f in fields(thing)}
    said = {k: v for k, v in vars(thing).items() if k in defaults and v != defaults[k]}
    return {"name": name, **{key: _plain(value) for key, value in said.items()}}


def _checked(
    spec: dict[str, Any], cluster: TimedCluster, data: Mapping[str, Any]
) -> dict[str, Any]:
    spec["cluster"] = _cluster(cluster, data)
    if isinstance(cluster, Trace) and cluster.path not in TRACES:
        # A relative path means another file elsewhere.
        spec["cluster"]["path"] = str(Path(cluster.path).resolve())
    Spec.of(spec)
    return {"updates": spec.pop("updates"), **spec}


def _cluster(cluster: TimedCluster, data: Mapping[str, Any]) -> dict[str, Any]:
    """Its section; one of the user's own as the file has it, with the number of workers."""
    if type(cluster) in CLUSTERS.values():
        return section(cluster, CLUSTERS)
    said = data["cluster"]
    own: dict[str, Any] = {"name": said} if isinstance(said, str) else dict(said)
    if cluster.workers != STRUCTURE.named(CLUSTER, "cluster", own).workers:
        own["workers"] = cluster.workers
    located_own: dict[str, Any] = located(own, Path.cwd())
    return located_own


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {k: _plain(v) for k, v in asdict(value).items() if v is not None and v != ()}
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items() if v is not None and v != ()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
