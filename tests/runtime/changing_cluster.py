"""A cluster that gets its second node while a run waits for room, and loses it, with all it had, in
the middle of that run: started by test_nodes."""

import glob
import json
import logging
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import ray
import torch
from ray.cluster_utils import Cluster

import tardigrad as tg
from tardigrad.runtime.placement import ActorRoom
from tardigrad.runtime.reserving import ActorKind, reserved
from tardigrad.tasks import TASKS
from tests.runtime.processes_of_runs import beside, until, wait_for_updates
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays

STORE = 80 * 1024 * 1024
CPUS = 2
"""Of each node."""
UPDATES = 60
TASK, RULE = TASKS["logistic_regression"](), tg.rules.dana_ga(lr=0.02)
FAST_HEALTH = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


def trained(**placement: Any) -> dict[str, Any]:
    """How a run with two workers on half a GPU each ended, and what it said."""
    said: list[str] = []
    took = tg.Processes(gpus_per_worker=0.5, **placement)
    try:
        run = tg.train(TASK, RULE, workers=2, updates=30, processes=took, say=said.append)
    except ValueError as error:
        return {"error": str(error), "said": said}
    return {"updates": run.schedule.updates, "said": said}


def trained_meanwhile(cluster: Any, folder: Path) -> list[str]:
    """What a run said that needs both nodes, a worker and a shard on each: the second comes when
    it waits, and goes with what it has; a third has room for that."""
    said: list[str] = []

    def run() -> None:
        run = tg.train(
            TASK, RULE, tg.Async(), workers=2, shards=2, updates=UPDATES,
            checkpoints=tg.Checkpoints(folder, every=15),
            processes=tg.Processes(wait_s=120, digest_every=10),
            scenario=tg.Scenario(impose=tg.Gamma(workers=2, mean_s=0.05)), say=said.append,
        )  # fmt: skip
        assert_replays(run, TASK, RULE, UPDATES)

    with beside(run):  # and not the other way round: Ray starts nodes from the main thread only
        until(lambda: any("for room" in line for line in said))
        second = cluster.add_node(num_cpus=CPUS, object_store_memory=STORE)
        wait_for_updates(folder, 20)
        lose(cluster, second)
        cluster.add_node(num_cpus=CPUS, object_store_memory=STORE)
    came = assert_nothing_lost_or_twice(folder, 2, UPDATES)
    assert len(came[0] ^ came[1]) <= 2
    return said


def lose(cluster: Any, node: Any) -> None:
    """Kill a node; what it had on this machine goes with it."""
    sockets = [node.plasma_store_socket_name, node.raylet_socket_name]
    cluster.remove_node(node, allow_graceful=False)
    of_its_own = [path for path in glob.glob("/dev/shm/*") if node.unique_id in path]
    for path in [*sockets, *of_its_own]:
        if path and os.path.exists(path):
            os.remove(path)
    shutil.rmtree(node.get_runtime_env_dir_path(), ignore_errors=True)


def nodes_of(strategy: Any) -> int:
    """On how many nodes Ray finds room for two workers."""
    wait_until_free()
    actors = [ActorKind("worker", ActorRoom(1.0))] * 2
    with reserved(actors, strategy, 30.0, lambda text: None) as nodes:
        return len(set(nodes))


def wait_until_free() -> None:
    """Until Ray has said for a second that all CPUs are: what it knows of nodes comes in reports,
    and where it thinks one taken, it places nothing there."""
    calm = 0
    while calm < 10:
        calm = calm + 1 if ray.available_resources().get("CPU") == 2 * CPUS else 0
        time.sleep(0.1)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    head = {
        "num_cpus": CPUS, "include_dashboard": False, "object_store_memory": STORE,
        "_system_config": FAST_HEALTH,
    }  # fmt: skip
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    out: dict[str, Any] = {}
    try:
        out["refused"] = trained(wait_s=1)
        out["said"] = trained_meanwhile(cluster, folder)
        out["nodes"] = {name: nodes_of(name) for name in ("spread", "pack")}
        print(json.dumps(out))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
