"""Pipelines as schedules: PipeDream's weight stashing.

A model is cut into P stages, each on a machine of its own. Minibatches follow one another through
them, forward and then backward, and a stage updates its parameters after each backward pass. A
minibatch is carried backward with the parameters that carried it forward ("stashed"), so its
gradient is that of the whole model at the versions it met on its way: a row of a schedule whose
shards are the stages.
"""

from typing import Any

import numpy as np

from tardigrad.clusters import TimedCluster
from tardigrad.core.arrays import Floats, Ints
from tardigrad.core.checks import count, number, require
from tardigrad.scheduling.make import about_part
from tardigrad.scheduling.schedule import Schedule

FORWARD = 1 / 3
"""The forward pass's share of a stage's time: a backward pass takes about twice as long."""


def pipeline_schedule(
    stages: int,
    cluster: TimedCluster,
    updates: int = 1000,
    seed: int = 0,
    forward: float = FORWARD,
) -> Schedule:
    """The schedule of PipeDream with P stages, one forward, one backward (1F1B).

    Stage s (0 is where data come in) takes P − s minibatches forward, and from then on one backward
    and one forward in turn. So the forward pass of minibatch b finds there

        version max(0, b − (P − 1 − s))

    whatever the times are: the last stage's gradients are never late, the first one's by P − 1.

    A row is a minibatch, applied at stage s when its backward pass has ended there. Worker i of the
    schedule is the i-th of the P minibatches under way: row b is of worker b mod P, as its step
    b div P. Execute it with shard_by="tensor", so that stages hold whole tensors, in the model's
    order.

    Args:
        stages: P.
        cluster: with a machine for each stage. Machine s takes its b-th step time for both passes
            of minibatch b through stage s. Moving activations takes no time.
        updates: how many minibatches, which are as many versions of every stage.
        forward: share of a step time that is the forward pass's.

    Limits: one stage is one worker, never late.

    Traps: the views of a row are of different versions from stage to stage, and never existed at
    one time; PipeDream's "vertical sync", which would make them one, is not done. PipeMare keeps no
    stash: its backward pass meets newer parameters, which is no gradient at any view. Its rate,
    which shrinks with the delay, is `rules.pipemare`.

    Reference: Narayanan et al., PipeDream: Generalized Pipeline Parallelism for DNN Training
    (2019), Section 3.3.
    """
    count("stages", stages)
    count("updates", updates)
    count("seed", seed, least=0)
    require(
        isinstance(cluster, TimedCluster) and cluster.undisturbed,
        "a pipeline needs a cluster with times, without network and absences, such as "
        f"tg.Constant(workers={stages}, step_s=1.0)",
    )
    require(
        cluster.workers == stages,
        f"{stages} stages need as many machines, and the cluster has {cluster.workers}: "
        f"write workers={stages}",
    )
    share = number("forward", forward)
    require(0 < share < 1, f"forward = {forward} is not in (0, 1)")
    machine, batch = np.arange(stages)[:, None], np.arange(updates)[None, :]
    took_s = cluster.realise(seed).step_s(machine, batch)
    begins_s, ends_s = _passes(took_s, share)
    row = np.broadcast_to(batch, ends_s.shape)
    # Of equal times the earlier minibatch's: it was under way before.
    order = np.lexsort((row.ravel(), ends_s.ravel()))
    about: dict[str, Any] = {
        "policy": {"name": "pipeline", "stages": stages, "forward": forward},
        "cluster": about_part(cluster),
        "seed": seed,
    }
    read = stage_versions(stages, updates)
    return Schedule(
        workers=stages,
        shards=stages,
        worker=np.arange(updates) % stages,
        step=np.arange(updates) // stages,
        start_s=begins_s,
        end_s=ends_s[0],
        stamp=read[:, 0].copy(),
        read=read,
        group_shard=np.broadcast_to(machine, ends_s.shape).ravel()[order],
        group_time_s=ends_s.ravel()[order],
        group_scale=np.ones(len(order)),
        group_start=np.arange(len(order) + 1),
        group_rows=row.ravel()[order],
        about=about,
    )


def stage_versions(stages: int, updates: int) -> Ints:
    """The version of each stage that each minibatch meets: (minibatches, stages)."""
    late = stages - 1 - np.arange(stages)
    versions: Ints = np.maximum(0, np.arange(updates)[:, None] - late)
    return versions


def _passes(took_s: Floats, forward: float) -> tuple[Floats, Floats]:
    """When each minibatch enters the pipeline, and when its backward pass ends at each stage
    (stages, minibatches); took_s: of both passes."""
    stages, batches = took_s.shape
    up_s, down_s = forward * took_s, (1 - forward) * took_s
    begins_s = np.zeros(batches)
    forth_s, back_s = np.zeros((stages, batches)), np.zeros((stages, batches))
    for wave in range(batches + stages - 1):
        # At stage s the forward pass of b is followed by the backward pass of b − (P − 1 − s), and
        # that by the forward pass of b + 1.
        came_s = 0.0
        for s in range(stages if wave < batches else 0):
            done = wave - (stages - s)
            free_s = back_s[s, done] if done >= 0 else forth_s[s, wave - 1] if wave else 0.0
            start_s = max(came_s, free_s)
            begins_s[wave] = start_s if s == 0 else begins_s[wave]
            came_s = forth_s[s, wave] = start_s + up_s[s, wave]
        for s in range(stages):
            b = wave - (stages - 1 - s)
            if 0 <= b < batches:
                before_s = forth_s[s, wave] if wave < batches else back_s[s, b - 1]
                from_s = back_s[s + 1, b] if s + 1 < stages else before_s
                back_s[s, b] = max(before_s, from_s) + down_s[s, b]
    return begins_s, back_s
