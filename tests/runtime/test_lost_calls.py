"""Ray loses calls of the driver, by Ray's own injection of failures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.processes_of_runs import own_cluster
from tests.runtime.run_checks import without_start

LOST = 8
"""Of a hundred calls of actors, as long as there is a run."""
KINDS = {
    "request": {"req_failure_prob": LOST, "resp_failure_prob": 0, "in_flight_failure_prob": 0},
    "answer": {"req_failure_prob": 0, "resp_failure_prob": LOST, "in_flight_failure_prob": 0},
    "both": {"req_failure_prob": 0, "resp_failure_prob": 0, "in_flight_failure_prob": LOST},
}


@pytest.mark.stress
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_lost_calls_of_actors_are_made_again(kind: str, tmp_path: Path) -> None:
    """Those that were carried out all the same too. A process whose very first call is lost may
    have begun its log, and is made again."""
    lost = {"CoreWorkerService.grpc_client.PushTask": {"num_failures": -1, **KINDS[kind]}}
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.lost_calls", str(tmp_path / "run")],
        env={**own_cluster(), "RAY_testing_rpc_failure": json.dumps(lost)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    *said, unavailable = [line for line in done.stdout.splitlines() if "rpc_chaos" not in line]
    assert int(unavailable.removesuffix(" calls were lost, and it replays bit for bit")) > 0
    expected = re.compile(r"(shard|worker) \d died \(it cannot be reached\), and is brought back")
    assert all(expected.fullmatch(line) for line in without_start(said))
