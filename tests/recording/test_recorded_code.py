"""A recording is replayed with the code it was made with, and what changed is told by name."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad.core.computer import computer
from tardigrad.core.used_code import used_code
from tardigrad.recording.facts import check_facts, facts_of, policy_facts
from tardigrad.recording.record import FORMAT, begin_record, resume_record
from tardigrad.recording.replay import replay_recorded
from tardigrad.recording.replica import tensor_digest
from tardigrad.tasks import quadratic

SCHEDULE = tg.Schedule.from_order([0, 1, 1, 0] * 5, 2)
TASK = quadratic(6, noise=0.1)


def recorded(rule: tg.Rule) -> dict[str, Any]:
    """What a run on Ray would leave of this schedule, as it comes out of its file."""
    ended = tg.execute(SCHEDULE, TASK, rule, "exact").params
    digests = [[0, SCHEDULE.updates, tensor_digest(ended)]]
    record = {"facts": facts_of(TASK, rule, 1), "shard_by": "slice", "digests": digests}
    return json.loads(json.dumps(record))


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example of a user's rule, in a folder of the user's."""
    example = Path(__file__).parents[2] / "docs/examples/root_penalty.py"
    file = tmp_path / "own_penalty.py"
    file.write_text(example.read_text())
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    sys.modules.pop("own_penalty", None)


def test_a_users_rule_is_compared_and_refused_by_its_files_name(own: Path) -> None:
    rule = importlib.import_module("own_penalty").root_penalty(0.1)
    record = recorded(rule)
    assert replay_recorded(SCHEDULE, TASK, rule, record).difference is None
    own.write_text(own.read_text().replace("push.staleness**", "2 * push.staleness**"))
    del sys.modules["own_penalty"]
    importlib.invalidate_caches()
    other = importlib.import_module("own_penalty").root_penalty(0.1)
    with pytest.raises(ValueError, match=r"other code \(own_penalty\.py has changed\).*--force"):
        replay_recorded(SCHEDULE, TASK, other, record)
    forced = replay_recorded(SCHEDULE, TASK, other, record, force=True)
    assert forced.difference is not None
    assert forced.difference.version == SCHEDULE.updates


def test_another_rule_than_the_recorded_one_is_refused_by_its_files(own: Path) -> None:
    record = recorded(tg.rules.gap_aware(0.1))
    with pytest.raises(ValueError, match=r"tardigrad/rules/gap\.py is not used now"):
        replay_recorded(SCHEDULE, TASK, tg.rules.sgd(0.1), record)


COPIED = """
import json, sys
from dataclasses import replace
from pathlib import Path
import tardigrad as tg
from tardigrad.recording.record import FORMAT, begin_record, resume_record
from tardigrad.recording.replay import replay_recorded
from tardigrad.recording.facts import facts_of
from tardigrad.recording.replica import tensor_digest
from tardigrad.tasks import quadratic

assert Path(tg.__file__).is_relative_to(Path.cwd()), tg.__file__
schedule, task = tg.Schedule.from_order([0, 1, 1, 0] * 5, 2), quadratic(6, noise=0.1)
rule, file = tg.rules.gap_aware(0.1), Path("record.json")
if not file.exists():
    ended = tg.execute(schedule, task, rule, "exact").params
    digests = [[0, schedule.updates, tensor_digest(ended)]]
    facts = facts_of(task, rule, 1)
    file.write_text(json.dumps({"facts": facts, "shard_by": "slice", "digests": digests}))
try:
    found = replay_recorded(schedule, task, rule, json.loads(file.read_text())).difference
    print("same" if found is None
          else "different")
except ValueError as error:
    print(error)
"""


def test_a_rule_that_is_added_refuses_nothing_and_a_changed_one_is_named(tmp_path: Path) -> None:
    """With a copy of the package whose files are added to and changed."""
    package = tmp_path / "tardigrad"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(tg.__file__).parent, package, ignore=ignored)
    (tmp_path / "copied.py").write_text(COPIED)

    def says() -> str:
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "copied.py"]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert says() == "same\n"
    (package / "rules/added.py").write_text("from tardigrad.rules.sgd import Sgd\n")
    (package / "tasks/added.py").write_text("")
    for name in ("rules/__init__.py", "rules/catalogue.py", "rules/adam.py", "tasks/__init__.py"):
        with (package / name).open("a") as file:
            file.write("\n# A comment that changes the file.\n")
    assert says() == "same\n"
    with (package / "rules/gap.py").open("a") as file:
        file.write("\n# A comment that changes the file.\n")
    said = says()
    assert "with other code (tardigrad/rules/gap.py has changed): the same bits cannot" in said
    assert "adam" not in said


def test_a_changed_policy_stops_a_run_from_going_on_but_not_a_replay() -> None:
    """A replay executes what the policy decided then."""
    rule = tg.rules.sgd(0.1)
    here = facts_of(TASK, rule, 1) | policy_facts(tg.Sync())
    name = "tardigrad/policies/synchronous.py"
    before = {**here, "policy_code": {**used_code(tg.Sync()), name: "0" * 32}}
    with pytest.raises(ValueError, match=f"{name} has changed.*Start anew"):
        check_facts(before, here, "Start anew")
    check_facts(here, here, "")
    record = recorded(rule)
    record["facts"] |= {"policy_code": before["policy_code"]}
    assert replay_recorded(SCHEDULE, TASK, rule, record).difference is None


@pytest.mark.parametrize(
    ("fact", "value", "told"),
    [
        ("instruction_set", "none", "another instruction set"),
        ("processor", "none", "another processor"),
        ("start", "0", "other initial parameters"),
    ],
)
def test_what_else_bits_depend_on_is_told(fact: str, value: str, told: str) -> None:
    here = facts_of(TASK, tg.rules.sgd(0.1), 1)
    with pytest.raises(ValueError, match=told):
        check_facts({**here, fact: value}, here, "")


def test_a_recording_of_other_computers_is_refused_by_their_names() -> None:
    """Whatever the driver's was, which computes nothing unless somebody dies."""
    rule = tg.rules.sgd(0.1)
    record = recorded(rule) | {"computers": [computer()]}
    record["facts"] |= {"processor": "another"}
    assert replay_recorded(SCHEDULE, TASK, rule, record).difference is None
    record["computers"] += ["a cray"]
    with pytest.raises(ValueError, match=r"computed on .* and on a cray, and this is .*--force"):
        replay_recorded(SCHEDULE, TASK, rule, record)
    assert replay_recorded(SCHEDULE, TASK, rule, record, force=True).difference is None


def test_a_run_on_ray_can_be_resumed_on_another_processor_but_not_with_another_torch(
    tmp_path: Path,
) -> None:
    facts = facts_of(TASK, tg.rules.sgd(0.1), 1)
    plain = {"format": FORMAT, "updates": 10, "facts": facts}
    begin_record(tmp_path, plain, began_s=5.0)
    elsewhere = {**facts, "processor": "a cray", "instruction_set": "other", "machine": "other"}
    assert resume_record(tmp_path, {**plain, "facts": elsewhere}).began_s == 5.0
    with pytest.raises(ValueError, match="another torch version"):
        resume_record(tmp_path, {**plain, "facts": {**facts, "torch": "0"}})


def test_a_run_that_is_resumed_elsewhere_says_so_and_is_not_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule, saving = tg.rules.sgd(0.1), tg.Checkpoints(tmp_path, every=5)
    timed = tg.schedule(tg.Async(), tg.Constant(2, 1.0), updates=20)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("tardigrad.engine.execution.computed_on", lambda device: "a cray")
        first = tg.execute(
            timed, TASK, rule, "exact", checkpoints=saving, stop=tg.Stop(virtual_s=5.0)
        )
        assert 0 < first.schedule.updates < timed.updates
    said: list[str] = []
    saving = replace(saving, resume=True)
    run = tg.execute(timed, TASK, rule, "exact", checkpoints=saving, say=said.append)
    assert [line for line in said if line.startswith("the run was computed on a cray, and goes on")]
    assert run.provenance is not None
    assert run.provenance.computers == ("a cray", computer())
    for what in (run, tg.Run.load(tmp_path, task=TASK, rule=rule)):
        with pytest.raises(ValueError, match="computed on a cray and on"):
            tg.replay(what)
        assert tg.replay(what, force=True).difference is None


def test_a_checkpoint_tells_whose_code_has_changed(own: Path, tmp_path: Path) -> None:
    rule = importlib.import_module("own_penalty").root_penalty(0.1)
    saving = tg.Checkpoints(tmp_path, every=5)
    whole = tg.execute(SCHEDULE, TASK, rule, "exact", checkpoints=saving)
    saving = replace(saving, resume=True)
    said: list[str] = []
    again = tg.execute(SCHEDULE, TASK, rule, "exact", checkpoints=saving, say=said.append)
    assert torch.equal(again.params, whole.params)
    assert not [line for line in said if "changed" in line]
    own.write_text(own.read_text() + "# changed\n")
    tg.execute(SCHEDULE, TASK, rule, "exact", checkpoints=saving, say=said.append)
    assert said[-1].startswith("since the checkpoint was made, own_penalty.py has changed; what")
    own.write_text(own.read_text() + "# again\n")
    with pytest.warns(UserWarning, match=r"own_penalty\.py has changed"):
        tg.execute(SCHEDULE, TASK, rule, "exact", checkpoints=saving)
