"""[link] in a file: what it may say, and a run folder of a schedule that is made meanwhile."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import tardigrad as tg
from tardigrad.engine import Tick
from tardigrad.engine.observer import Watch
from tardigrad.experiment import Spec, compare_entries, run
from tardigrad.experiment.real import compare_real
from tardigrad.recording.folder import RunFolder
from tardigrad.tasks import quadratic

DATA = {
    "updates": 60,
    "task": {"name": "quadratic", "dimension": 20, "noise": 0.2},
    "rule": {"name": "fasgd", "lr": 0.01},
    "cluster": {"name": "gamma", "workers": 4},
    "link": {"name": "bandwidth_aware", "c_pull": 0.3, "c_push": 0.2},
    "checkpoint_every": 10,
}


def test_a_link_is_a_section_like_any_other() -> None:
    spec = Spec.of(DATA)
    assert spec.make_link() == tg.BandwidthAware(c_push=0.2, c_pull=0.3)
    assert Spec.of({**DATA, "link": "full"}).make_link() == tg.Full()
    assert Spec.of({k: v for k, v in DATA.items() if k != "link"}).make_link() == tg.Full()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"link": {"name": "bandwith_aware"}}, "did you mean 'bandwidth_aware'"),
        ({"link": {"name": "bandwidth_aware", "c_pull": -1}}, "c_pull must not be negative"),
        ({"link": {"name": "every", "pull": 0}}, "pull must be a whole number of at least 1"),
        ({"link": {"name": "budget", "bytes_per_update": 0}}, "bytes_per_update must be greater"),
        ({"rule": {"name": "sgd", "lr": 0.1}}, "this rule keeps none"),
        (
            {"link": {"name": "every", "push": 2}, "policy": "sync"},
            "use an asynchronous policy, or push=1$",
        ),
        (
            {"link": {"name": "budget", "bytes_per_update": 9, "direction": "push"}}
            | {"policy": {"name": "rennala", "batch": 2}},
            'use an asynchronous policy, or on_drop="reapply"$',
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_made(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Spec.of(DATA | changes)


def test_a_run_that_makes_its_schedule_resumes_and_keeps_it(tmp_path: Path) -> None:
    spec = Spec.of(DATA)
    calm = run(spec, tmp_path / "calm")

    def begin(schedule: tg.Schedule | None) -> Watch:
        assert schedule is None

        def watch(tick: Tick) -> None:
            if tick.updates == 37:
                raise KeyboardInterrupt

        return watch

    rough = tmp_path / "rough"
    with pytest.raises(KeyboardInterrupt):
        run(spec, rough, begin=begin)
    folder = RunFolder.open(rough)
    assert folder.summary()["status"] == "stopped"
    assert folder.summary()["saved_updates"] == 30
    done = run(spec, rough, resume=True)
    assert torch.equal(done.params, calm.params)
    assert folder.schedule() == RunFolder.open(tmp_path / "calm").schedule() == calm.schedule
    assert folder.metrics()[-1]["pull_bytes"] < folder.metrics()[-1]["pull_bytes_potential"]
    replayed = tg.execute(folder.schedule(), quadratic(20, noise=0.2), tg.rules.fasgd(lr=0.01))
    assert torch.equal(replayed.params, calm.params)


def test_a_comparison_with_ray_refuses_a_link(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds messages back"):
        compare_real(Spec.of(DATA), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_links_can_be_compared() -> None:
    full = replace(Spec.of(DATA), link={"name": "full"})
    rare = replace(full, link={"name": "every", "pull": 5})
    found = compare_entries({"full": full, "aware": Spec.of(DATA), "every": rare})
    ends = {one.label: one.runs[0][-1] for one in found.series}
    assert not found.met_the_same
    assert ends["full"]["pull_bytes"] == 60 * 20 * 4
    assert ends["every"]["pull_bytes"] < ends["full"]["pull_bytes"] / 4
    assert ends["aware"]["pull_bytes"] < ends["full"]["pull_bytes"]
