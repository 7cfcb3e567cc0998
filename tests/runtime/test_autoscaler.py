"""A run that waits for room is seen by Ray's autoscaler, which starts the node that it needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.processes_of_runs import own_cluster

ALONE = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c"]
"""Ray's autoscaling cluster calls `ray stop`, which ends every Ray that it sees."""
START = (
    "ip link set lo up && mount -t tmpfs none /tmp && python -m tests.runtime.autoscaled_cluster"
)


@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may keep `ray stop` from other processes")
def test_the_autoscaler_starts_the_node_that_a_run_waits_for() -> None:
    env = own_cluster()
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    done = subprocess.run(
        [*ALONE, START], capture_output=True, text=True, timeout=280, env=env, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["updates"] == 30
    assert found["nodes"] == 2
    assert any("for room for 2 workers (1 CPU, 0.5 GPUs each)" in line for line in found["said"])
