"""Room on a cluster: waited for where it may come, with a word; refused with what is missing."""

import json
import subprocess
import sys
from pathlib import Path

from tests.runtime.processes_of_runs import own_cluster


def test_a_run_waits_for_nodes_that_come(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.growing_cluster"], capture_output=True, text=True,
        timeout=280, env=own_cluster(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    who = "2 workers (1 CPU, 0.5 GPUs each) and 1 shard (1 CPU each)"
    why = "3 CPUs are needed, and 2 of 2 are free; no node has 0.5 GPUs (the most on one is 0)"
    assert (
        f"no room on the cluster for {who} after 1 s of waiting: {why}. Ask for less"
        in (found["refused"]["error"])
    )
    assert found["waited"]["updates"] == 30
    assert any(f" s for room for {who}: {why}" in line for line in found["waited"]["said"])
    assert found["nodes"] == {"spread": 2, "pack": 1}
