"""The column `group_weights`: made, saved, checked, cut; and nothing where there are none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tardigrad as tg
from tardigrad.scheduling import Recorder
from tardigrad.scheduling.prefix import executed_digest, prefix
from tardigrad.scheduling.validate import validate


def made() -> tg.Schedule:
    """Two workers, three groups of which the second has weights."""
    recorder = Recorder(2, 1)
    for version in range(3):
        rows = [recorder.start(w, version, version, (version,), float(version)) for w in range(2)]
        for row in rows:
            recorder.finish(row, version + 1.0)
        weights = (0.25, 0.75) if version == 1 else ()
        recorder.apply(0, rows, 1.0, version + 1.0, weights)
    return recorder.schedule()


def test_groups_without_weights_beside_those_with_some() -> None:
    schedule = made()
    validate(schedule)
    assert schedule.group_weights.tolist() == [0.5, 0.5, 0.25, 0.75, 0.5, 0.5]
    assert [schedule.weights(group) for group in range(3)] == [(), (0.25, 0.75), ()]
    assert schedule.weighted
    assert not replace(schedule, group_weights=np.full(6, 0.5)).weighted


def test_they_are_saved_and_part_of_what_an_execution_depends_on(tmp_path: Path) -> None:
    schedule = made()
    plain = replace(schedule, group_weights=np.empty(0))
    schedule.save(tmp_path / "weights")
    plain.save(tmp_path / "plain")
    assert tg.Schedule.load(tmp_path / "weights") == schedule != plain
    assert tg.Schedule.load(tmp_path / "plain") == plain
    assert b"group_weights" not in (tmp_path / "plain").read_bytes()
    assert schedule.digest != plain.digest
    other = replace(schedule, group_weights=np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5]))
    assert executed_digest(schedule, 1) == executed_digest(other, 1)
    assert executed_digest(schedule, 2) != executed_digest(other, 2)


def test_a_prefix_has_the_weights_of_its_groups() -> None:
    cut = prefix(made(), 2)
    validate(cut)
    assert cut.group_weights.tolist() == [0.5, 0.5, 0.25, 0.75]


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        ([0.5, 0.5], "group_weights has the wrong length"),
        ([0.5, 0.5, 0.25, 0.7, 0.5, 0.5], "do not add up to 1 .first at index 1"),
        ([0.5, 0.5, -0.25, 1.25, 0.5, 0.5], "no weight"),
        ([0.5, 0.5, np.nan, 1.0, 0.5, 0.5], "no weight"),
    ],
)
def test_what_is_no_weight_is_refused(weights: list[float], what: str) -> None:
    with pytest.raises(ValueError, match=what):
        validate(replace(made(), group_weights=np.array(weights)))
