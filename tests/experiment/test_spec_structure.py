"""Plain data as typed arguments: which member of a union is meant, and where none is."""

from pathlib import Path
from typing import Any, Literal

import pytest

import tardigrad as tg
from tardigrad.clusters import Constant
from tardigrad.experiment.spec import CLUSTER, STRUCTURE, TASK
from tardigrad.policies import Policy


def takes(
    shards: int | Literal["tensor"] = 1,
    policy: Policy | None = None,
    sizes: tuple[int, int] | tuple[float, ...] = (),
) -> tuple[Any, ...]:
    return shards, policy, sizes


@pytest.mark.parametrize(
    ("args", "made"),
    [
        ({"shards": 3}, (3, None, ())),
        ({"shards": "tensor"}, ("tensor", None, ())),
        ({"policy": "sync"}, (1, tg.Sync(), ())),
        ({"policy": {"name": "backup", "backups": 2}}, (1, tg.Backup(2), ())),
        ({"sizes": [1, 2]}, (1, None, (1, 2))),
        ({"sizes": [1, 2, 3]}, (1, None, (1.0, 2.0, 3.0))),
    ],
)
def test_the_member_that_takes_it_is_meant(args: dict[str, Any], made: tuple[Any, ...]) -> None:
    found = STRUCTURE.call(takes, "part", args)
    assert found == made
    assert [type(x) for x in found[2]] == [type(x) for x in made[2]]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"shards": "row"}, "part.shards must be one of 'tensor', got 'row'"),
        ({"shards": 1.5}, "part.shards must be a whole number or"),
        ({"policy": 3}, r'part.policy must be a table such as \{name = "async", …\} or left out'),
        ({"sizes": ["x"]}, r"part.sizes\[0\] must be a number, got 'x'"),
    ],
)
def test_what_no_member_takes_is_refused(args: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        STRUCTURE.call(takes, "part", args)


def test_step_times_are_one_number_or_one_for_each_worker() -> None:
    data = {"name": "constant", "workers": 2}
    one, each = (STRUCTURE.named(CLUSTER, "cluster", data | {"step_s": s}) for s in (2, [1, 3]))
    assert one == Constant(workers=2, step_s=2.0)
    assert each == Constant(workers=2, step_s=(1.0, 3.0))


def test_a_folder_of_data_is_a_string(tmp_path: Path) -> None:
    maker, args = STRUCTURE.choose(TASK, "task", {"name": "mnist_mlp", "data_folder": "here"})
    assert STRUCTURE.arguments(maker, "task", args)["data_folder"] == "here"
