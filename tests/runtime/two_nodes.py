"""Two raylets on one machine; one of them is killed in the middle of a run, with all it had."""

import glob
import logging
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import ray
import torch
from ray.cluster_utils import Cluster

sys.path.insert(0, str(Path(__file__).parents[2]))

import tardigrad as tg
from tardigrad import rules
from tardigrad.runtime import ActorPool, train
from tardigrad.tasks import TASKS
from tests.runtime.run_checks import assert_nothing_lost_or_twice, assert_replays, updates_logged

UPDATES = 80
FAST_HEALTH = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 300,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    memory = 80 * 1024 * 1024
    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1, "object_store_memory": memory, "_system_config": FAST_HEALTH,
            "include_dashboard": False, "resources": {"near": 2},
        },
    )  # fmt: skip
    far = cluster.add_node(num_cpus=1, resources={"far": 3}, object_store_memory=memory)
    ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    task, rule = TASKS["logistic_regression"](), rules.RULES["dana_ga"](lr=0.02)
    here, there = {"near": 1.0}, {"far": 1.0}
    places = {
        ("shard", 0): here, ("worker", 0): here,
        ("shard", 1): there, ("worker", 1): there, ("worker", 2): there,
    }  # fmt: skip

    def lose() -> None:
        while updates_logged(folder, 1) < 30:
            time.sleep(0.02)
        mine = set(glob.glob("/dev/shm/*"))
        sockets = [far.plasma_store_socket_name, far.raylet_socket_name]
        cluster.remove_node(far, allow_graceful=False)
        for path in sockets:
            if path and os.path.exists(path):
                os.remove(path)
        for path in set(glob.glob("/dev/shm/*")) & mine:
            if far.unique_id in path:
                os.remove(path)
        shutil.rmtree(far.get_runtime_env_dir_path(), ignore_errors=True)

    thread = threading.Thread(target=lose, daemon=True)
    thread.start()
    try:
        with ActorPool() as pool:
            run = train(
                task, rule, tg.Async(), workers=3, shards=2, updates=UPDATES,
                checkpoints=tg.Checkpoints(folder, every=20),
                processes=tg.Processes(pool=pool, resources=places, digest_every=10),
                scenario=tg.Scenario(impose=tg.Gamma(workers=3, mean_s=0.05)),
            )  # fmt: skip
        thread.join()
        assert_replays(run, task, rule, UPDATES)
        came = assert_nothing_lost_or_twice(folder, 2, UPDATES)
        assert len(came[0] ^ came[1]) <= 3
        print("replays bit for bit")
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
