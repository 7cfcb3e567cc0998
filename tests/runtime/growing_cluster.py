"""A cluster that gets its second node while a run waits for room: started by test_room."""

import json
import logging
import threading
import time
from typing import Any

import ray
from ray.cluster_utils import Cluster

import tardigrad as tg
from tardigrad.runtime.actor_pool import ActorPool
from tardigrad.runtime.placement import ActorRoom
from tardigrad.runtime.reserving import ActorKind
from tardigrad.tasks import TASKS
from tests.runtime.processes_of_runs import until

STORE = 80 * 1024 * 1024
CPUS = 4
"""Of both nodes, half of them each."""
TASK, RULE = TASKS["logistic_regression"](features=5, train_size=60), tg.rules.sgd(lr=0.05)


def trained(said: list[str] | None = None, **placement: Any) -> dict[str, Any]:
    """How a run with two workers on half a GPU each ended, and what it said."""
    said = [] if said is None else said
    took = tg.Processes(gpus_per_worker=0.5, **placement)
    try:
        run = tg.train(TASK, RULE, workers=2, updates=30, processes=took, say=said.append)
    except ValueError as error:
        return {"error": str(error), "said": said}
    return {"updates": run.schedule.updates, "said": said}


def nodes_of(pool: ActorPool, strategy: Any) -> int:
    """On how many nodes Ray places two workers."""
    wait_until_free()
    actors = [ActorKind("worker", ActorRoom(1.0))] * 2
    pool.prepare(actors, strategy, 30.0, lambda text: None)
    taken = [pool.take("worker", ActorRoom(1.0)) for _ in actors]
    where = ray.get([one.__ray_call__.remote(_node) for one in taken])
    pool.close()
    return len(set(where))


def wait_until_free() -> None:
    """Until Ray has said for a second that all CPUs are: what it knows of nodes comes in reports,
    and where it thinks one taken, it places nothing there."""
    calm = 0
    while calm < 10:
        calm = calm + 1 if ray.available_resources().get("CPU") == CPUS else 0
        time.sleep(0.1)


def _node(actor: Any) -> str:
    return ray.get_runtime_context().get_node_id()


def main() -> None:
    head = {"num_cpus": CPUS // 2, "include_dashboard": False, "object_store_memory": STORE}
    cluster: Any = Cluster(initialize_head=True, head_node_args=head)
    ray.init(cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    out: dict[str, Any] = {}
    try:
        out["refused"] = trained(wait_s=1)
        said: list[str] = []
        waiting = threading.Thread(target=lambda: out.update(waited=trained(said, wait_s=120)))
        waiting.start()
        until(lambda: any("for room" in line for line in said))
        cluster.add_node(num_cpus=CPUS // 2, num_gpus=1, object_store_memory=STORE)
        waiting.join()
        out["nodes"] = {name: nodes_of(ActorPool(1.0), name) for name in ("spread", "pack")}
        print(json.dumps(out))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
