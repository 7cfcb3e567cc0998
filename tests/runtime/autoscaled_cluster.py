"""A cluster whose autoscaler starts the node that a run waits for: started by test_autoscaler, in a
process namespace of its own, because Ray's autoscaling cluster ends every Ray that it sees."""

import json
import logging
from typing import Any

import ray
from ray.cluster_utils import AutoscalingCluster

from tests.runtime.changing_cluster import STORE, trained

NODE = {"CPU": 2, "GPU": 1, "object_store_memory": STORE}
WHEN = [
    "initialization",
    "setup",
    "head_setup",
    "worker_setup",
    "head_start_ray",
    "worker_start_ray",
]
NOTHING_TO_DO: dict[str, Any] = {
    **{f"{name}_commands": [] for name in WHEN},
    **{name: [] for name in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
    **{name: {} for name in ("auth", "docker", "file_mounts")},
}
"""What Ray wants to be told of, and a node that is a process of the same machine has not."""


class FakeCluster(AutoscalingCluster):
    """Ray's own, with the settings that its wheel leaves out."""

    def _generate_config(
        self, head_resources: Any, worker_node_types: Any, autoscaler_v2: bool = False, **_: Any
    ) -> Any:
        head = {"resources": dict(head_resources), "node_config": {}, "max_workers": 0}
        provider = ("use_node_id_as_ip", "disable_node_updaters", "disable_launch_config_check")
        return {
            "cluster_name": "fake",
            "max_workers": 1,
            "upscaling_speed": 1.0,
            "idle_timeout_minutes": 5,
            "head_node_type": "ray.head.default",
            "provider": {"type": "fake_multinode", **dict.fromkeys(provider, True)},
            "available_node_types": {**worker_node_types, "ray.head.default": head},
            **NOTHING_TO_DO,
        }


def main() -> None:
    node = {"resources": NODE, "node_config": {}, "min_workers": 0, "max_workers": 1}
    cluster = FakeCluster({"CPU": 1, "object_store_memory": STORE}, {"with_gpu": node})
    cluster.start()
    try:
        ray.init("auto", log_to_driver=False, logging_level=logging.ERROR)
        found = trained(wait_s=150)
        found["nodes"] = len(ray.nodes())
    finally:
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
