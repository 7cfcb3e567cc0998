"""Clipping is the work's: what is clipped by which, and where it stood in version 0.1."""

import math
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.engine.checkpoint import load_checkpoint, save_checkpoint
from tardigrad.engine.resume import CHECKPOINT, WORK
from tardigrad.tasks import Turn
from tardigrad.work import AnyWork
from tests.work.test_local_steps import LR, simulated, task

NORM = 0.05
"""Below what gradients of the task have."""
WORKS: dict[str, AnyWork] = {
    "gradient": tg.OneGradient(),
    "micro_batches": tg.MicroBatches(3),
    "local_steps": tg.LocalSteps(3, tg.rules.sgd(LR, momentum=0.9)),
}


def clipping(work: Any, clip_norm: float | None) -> AnyWork:
    made: AnyWork = replace(work, clip_norm=clip_norm)
    return made


@pytest.mark.parametrize("name", WORKS)
def test_what_never_clips_changes_no_bit_and_what_does_is_another_run(name: str) -> None:
    free, wide, narrow = (
        simulated(clipping(WORKS[name], norm)).params for norm in (None, 1e30, NORM)
    )
    assert torch.equal(wide, free)
    assert not torch.allclose(narrow, free, atol=1e-4)


def pushed(work: AnyWork) -> Tensor:
    made = task()
    view = made.start()
    delivery = work.run(made, view, work.start(made, view), Turn(1, 6, 12), work.batches)
    assert delivery is not None
    return delivery.gradient.grad


def test_a_gradient_is_scaled_down_to_the_norm_and_the_mean_of_micro_batches_is() -> None:
    """Element by element, beside the gradients themselves."""
    made, turn = task(), Turn(1, 6, 12)
    each = [made.gradient(made.start(), turn.later(k)).grad.tolist() for k in range(3)]
    mean = [sum(three) / 3 for three in zip(*each, strict=True)]
    for work, whole in ((tg.OneGradient(NORM), each[0]), (tg.MicroBatches(3, NORM), mean)):
        norm = math.sqrt(sum(x * x for x in whole))
        assert norm > NORM
        assert pushed(work).tolist() == pytest.approx([x * NORM / norm for x in whole], abs=1e-15)


def test_what_local_steps_push_is_not_clipped() -> None:
    """A sum of steps, each of a clipped gradient."""
    work = tg.LocalSteps(8, tg.rules.sgd(1.0), clip_norm=NORM)
    assert NORM < float(pushed(work).norm()) <= 8 * NORM * (1 + 1e-12)


def test_statistics_and_losses_are_those_of_the_gradient() -> None:
    made = task(norm=True)
    free, clipped = (
        tg.OneGradient(norm).run(made, made.start(), (), Turn(0, 0, 0), 1).gradient
        for norm in (None, NORM)
    )
    assert torch.equal(free.loss, clipped.loss)
    assert len(free.buffers) == len(clipped.buffers) > 0


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf, "1", True])
def test_a_norm_that_is_none_is_refused_by_name(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match="clip_norm must be"):
        clipping(WORKS[name], wrong)


def in_the_rule(clip_norm: float, rule: tg.Rule | None = None) -> tg.Rule:
    with pytest.warns(FutureWarning, match=r"write work=tg\.OneGradient\(clip_norm=0\.05\)"):
        return replace(rule or tg.rules.sgd(LR, momentum=0.9), clip_norm=clip_norm)


@pytest.mark.parametrize("way", ["ahead", "together", "measured", "coded"])
def test_in_a_rule_it_warns_and_does_the_same_to_the_bit(way: str) -> None:
    asked: dict[str, Any] = {"rule": tg.rules.fasgd(LR)}
    if way == "together":
        asked["link"] = tg.BandwidthAware(0.05)
    elif way == "coded":
        asked["link"] = tg.Full(codec=tg.TopK(0.3))
    elif way == "measured":
        asked["evaluation"] = tg.Evaluation(0, measures=("b_staleness",))
    new = simulated(tg.OneGradient(NORM), **asked)
    old = simulated(None, in_the_rule(NORM, asked.pop("rule")), **asked)
    assert torch.equal(old.params, new.params)
    assert old.history.b_staleness == new.history.b_staleness
    assert old.work == new.work == tg.OneGradient(NORM)
    both = simulated(new.work, old.rule, **asked)  # said twice, and the same
    assert torch.equal(both.params, new.params)


@pytest.mark.parametrize("work", [tg.OneGradient(1.0), *list(WORKS.values())[1:]], ids=repr)
def test_in_a_rule_beside_another_work_it_is_refused(work: AnyWork) -> None:
    """Works other than one gradient are newer than clipping in rules."""
    with pytest.raises(ValueError, match=r"the rule says clip_norm=0\.05, and the work is .*leave"):
        simulated(work, in_the_rule(NORM))


def test_the_rule_of_local_steps_does_not_clip() -> None:
    with pytest.raises(ValueError, match=r"inner: .*write tg\.LocalSteps\(…, clip_norm=0\.05\)"):
        tg.LocalSteps(2, in_the_rule(NORM))


def test_a_rule_that_prepares_gradients_is_not_passed_over() -> None:
    @dataclass(frozen=True)
    class Halving(tg.Rule):
        def prepare(self, grad: Tensor) -> Tensor:
            return grad / 2

    with pytest.raises(ValueError, match=r"Halving\.prepare would not be called: .*tg\.Work"):
        simulated(None, Halving(LR, tg.rules.Sgd()))


def test_a_run_that_goes_on_tells_when_it_clips_elsewhere(tmp_path: Path) -> None:
    said: list[str] = []
    for updates, norm in ((6, NORM), (9, NORM), (12, 2 * NORM)):
        going_on = tg.Checkpoints(tmp_path, every=3, resume=updates > 6)
        made = {"updates": updates, "checkpoints": going_on, "say": said.append}
        simulated(tg.OneGradient(norm), **made)
    (line,) = (line for line in said if " was " in line and "from here on" in line)
    was, is_now = line.split(", and is ")
    assert was.startswith("the work was OneGradient(clip_norm=0.05)")
    assert "OneGradient(clip_norm=0.1)" in is_now


def test_the_same_run_said_anew_is_the_same(tmp_path: Path) -> None:
    """A checkpoint of before has clip_norm in its rule, and says no work."""
    said: list[str] = []
    whole = simulated(tg.OneGradient(NORM))
    simulated(tg.OneGradient(NORM), updates=6, checkpoints=tg.Checkpoints(tmp_path))
    tensors, facts = load_checkpoint(tmp_path / CHECKPOINT)
    del facts[WORK]
    facts["rule"] = facts["rule"].replace("clip_norm=None", f"clip_norm={NORM}")
    save_checkpoint(tmp_path / CHECKPOINT, tensors, facts)
    going_on = tg.Checkpoints(tmp_path, resume=True)
    ended = simulated(tg.OneGradient(NORM), checkpoints=going_on, say=said.append)
    assert torch.equal(ended.params, whole.params)
    assert not [line for line in said if "from here on" in line]


def test_a_rule_without_it_says_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace(tg.rules.sgd(LR), ema=0.9)
