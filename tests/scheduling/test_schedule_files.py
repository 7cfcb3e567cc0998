"""A saved schedule loads back equal; one that was cut or changed does not load."""

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

import tardigrad as tg
from tardigrad.clusters import Absence


def weighted() -> tg.Schedule:
    cluster = tg.Dispatcher(workers=3, weights=(3.0, 2.0, 1.0), drawn_factor=0.5)
    return tg.schedule(tg.Async(), cluster, 40)


MADE = {
    "async": lambda: tg.schedule(cluster=tg.Gamma(workers=4), updates=50, seed=3),
    "sync, shards": lambda: tg.schedule(tg.Sync(), tg.Gamma(workers=4), 20, shards=3),
    "weights": weighted,
    "members": lambda: tg.schedule(
        cluster=tg.Gamma(workers=3, absences=(Absence(1, 500.0, 2000.0),)), updates=60
    ),
    "order": lambda: tg.Schedule.from_order([0, 1, 0], 2, tg.Async(wait=False)),
    "no update": lambda: tg.Schedule.from_order([0], 2, tg.Sync()),
}


@pytest.mark.parametrize("name", MADE)
def test_round_trip(name: str, tmp_path: Path) -> None:
    made = MADE[name]()
    path = tmp_path / "run.schedule"
    made.save(path)
    loaded = tg.Schedule.load(str(path))
    assert loaded == made
    for f in fields(made):
        ours, theirs = getattr(made, f.name), getattr(loaded, f.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype
    assert list(tmp_path.iterdir()) == [path]


def test_equality_sees_every_field() -> None:
    made = MADE["members"]()
    for f in fields(made):
        value = getattr(made, f.name)
        if isinstance(value, np.ndarray):
            if not len(value):
                continue
            changed: Any = value.copy()
            changed.flat[0] += 1
        else:
            changed = {"workers": 9, "shards": 9, "clockless": True, "reasons": ("x",)}.get(
                f.name, {"policy": "other"}
            )
        assert replace(made, **{f.name: changed}) != made, f.name


@pytest.fixture(name="saved")
def saved_schedule(tmp_path: Path) -> Path:
    path = tmp_path / "run.schedule"
    MADE["async"]().save(path)
    return path


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no schedule file"):
        tg.Schedule.load(tmp_path / "nowhere")


def test_a_truncated_file_is_refused_wherever_it_was_cut(saved: Path) -> None:
    whole = saved.read_bytes()
    for size in (0, 4, 8, 200, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"run.schedule.*(truncated|altered|not a)"):
            tg.Schedule.load(saved)


def test_any_altered_byte_is_refused(saved: Path) -> None:
    """One bit, at a hundred places over header and arrays."""
    whole = saved.read_bytes()
    for at in np.linspace(0, len(whole) - 1, 100).astype(int).tolist():
        changed = bytearray(whole)
        changed[at] ^= 1
        saved.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match=r"run\.schedule"):
            tg.Schedule.load(saved)
    saved.write_bytes(whole)
    tg.Schedule.load(saved)


def test_another_kind_of_file_is_refused(saved: Path) -> None:
    save_file({"x": np.zeros(3)}, saved, metadata={"format": "something-else"})
    with pytest.raises(ValueError, match=r"is not a tardigrad-schedule-1 file.*something-else"):
        tg.Schedule.load(saved)
    save_file({"x": np.zeros(3)}, saved)
    with pytest.raises(ValueError, match="no format"):
        tg.Schedule.load(saved)
    saved.write_text("worker,step_s\n")
    with pytest.raises(ValueError, match="truncated or not a schedule file"):
        tg.Schedule.load(saved)


def test_what_fits_its_digest_is_still_validated(saved: Path) -> None:
    made = tg.Schedule.load(saved)
    broken = replace(made, worker=made.worker + 100)
    broken.save(saved)
    with pytest.raises(ValueError, match="worker names one that does not exist"):
        tg.Schedule.load(saved)


def test_the_file_says_what_made_it(saved: Path) -> None:
    with safe_open(saved, framework="np") as file:
        plain = json.loads(file.metadata()["plain"])
    assert plain["about"]["cluster"]["name"] == "Gamma"
    assert plain["about"]["policy"] == {"name": "Async", "wait": True}
    assert plain["about"]["seed"] == 3


def test_schedules_of_version_0_1_keep_their_digests_and_load(tmp_path: Path) -> None:
    """So runs that were begun with it go on. Where every gradient is answered once nothing is
    recorded that 0.1 did not know."""
    digests = {
        tg.Async(): "65395e9ed370dbdd397b732ccaaaf07bd7a966915b764b51fa006649b715a18e",
        tg.Backup(1): "1c74c4819bd287c3e77c73ed78cb6e64ba6d3e382c6a181a6ebee861f9574759",
        tg.Partial(push=2): "1268c0099561fcf8b19b880669761ca7ec33e4310bdccc04c8093eb0e08d95d8",
    }
    for policy, digest in digests.items():
        shards = 1 if policy == tg.Async() else 2
        made = tg.schedule(policy, tg.Gamma(workers=3), 10, shards=shards)
        assert made.digest == digest
        made.save(tmp_path / "schedule")
        with safe_open(tmp_path / "schedule", framework="np") as file:
            told = any(name.startswith("reply") for name in file.keys())  # noqa: SIM118
        assert told == isinstance(policy, tg.Partial)
        assert tg.Schedule.load(tmp_path / "schedule") == made


def test_what_was_sent_unasked_is_in_the_file(tmp_path: Path) -> None:
    made = tg.schedule(tg.Partial(push=2), tg.Gamma(workers=3), 10)
    made.save(tmp_path / "schedule")
    again = tg.Schedule.load(tmp_path / "schedule")
    assert again == made
    assert again.reply_extra.sum() + len(made.group_rows) + len(made.drop_row) == 3 * 10
