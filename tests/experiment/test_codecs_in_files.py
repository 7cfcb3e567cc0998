"""[link] codec in a file: what it may say, and a run folder that knows its codec."""

from pathlib import Path
from typing import Any

import pytest

import tardigrad as tg
from tardigrad.experiment import Spec, run
from tardigrad.planning.planned import plan

DATA: dict[str, Any] = {
    "updates": 60,
    "task": {"name": "quadratic", "dimension": 20, "noise": 0.2},
    "rule": {"name": "sgd", "lr": 0.05},
    "cluster": {"name": "gamma", "workers": 4},
    "link": {"codec": {"name": "top_k", "share": 0.1}},
    "seed": 3,
}


def test_a_codec_stands_in_the_link_with_a_gate_or_alone() -> None:
    assert Spec.of(DATA).make_link() == tg.Full(codec=tg.TopK(0.1))
    both = {"name": "every", "push": 2, "codec": "sign"}
    assert Spec.of(DATA | {"link": both}).make_link() == tg.Every(push=2, codec=tg.Sign())
    plain = {"codec": {"name": "int8", "block": 64, "error_feedback": False}}
    made = Spec.of(DATA | {"link": plain}).make_link()
    assert made.codec == tg.Int8(block=64, error_feedback=False)
    again = Spec.of(Spec.of(DATA).data())
    assert again == Spec.of(DATA)


def test_lots_are_drawn_by_the_seed_of_the_experiment_unless_the_file_says_another() -> None:
    lots = {"name": "random_k", "share": 0.1}
    assert Spec.of(DATA | {"link": {"codec": lots}}).make_link().codec == tg.RandomK(0.1, seed=3)
    own = {"codec": lots | {"seed": 8}}
    assert Spec.of(DATA | {"link": own}).make_link().codec == tg.RandomK(0.1, seed=8)


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        (
            {"name": "top_k", "share": 1.1},
            r"\[link.codec\] share must be greater than 0 and at most",
        ),
        ({"name": "topk", "share": 0.1}, "link.codec.name: there is no codec 'topk'.*'top_k'"),
        ({"share": 0.1}, "link.codec does not say which codec"),
        ({"name": "top_k"}, "link.codec.share is missing"),
        ({"name": "int8", "blocks": 3}, "did you mean 'block'"),
    ],
)
def test_what_a_codec_does_not_know_is_told_with_its_path(
    codec: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Spec.of(DATA | {"link": {"codec": codec}})


def test_a_folder_tells_its_codec_and_replays(tmp_path: Path) -> None:
    made = run(Spec.of(DATA), tmp_path)
    assert made.codec == tg.TopK(0.1)
    loaded = tg.Run.load(tmp_path)
    assert loaded.codec == tg.TopK(0.1)
    assert loaded.traffic is not None
    assert loaded.traffic.push.share == 0.2  # two numbers of twenty, each with its position
    assert tg.replay(tmp_path).difference is None
    assert loaded.schedule.about["link"] == {
        "name": "Full",
        "codec": {"name": "TopK", "share": 0.1, "error_feedback": True},
    }


def test_a_plan_takes_no_codec(tmp_path: Path) -> None:
    file = tmp_path / "coded.toml"
    file.write_text(Spec.of(DATA).toml())
    with pytest.raises(ValueError, match="plan with link=full"):
        plan(file)
