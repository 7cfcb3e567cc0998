"""Models of Hugging Face's transformers as they are, of tiny configurations: nothing is fetched."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import tardigrad as tg
from tardigrad.tasks import Data, Turn
from tardigrad.tasks.module import initialised

transformers = pytest.importorskip("transformers", reason="it is in the dev extra")
TURN = Turn(1, 3, 7)
DRAW = torch.Generator().manual_seed(0)
TOKENS = torch.randint(3, 32, (48, 10), generator=DRAW)
KINDS = (TOKENS.float().mean(1) > 17).long()


def language_model() -> Any:
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=32,
            n_positions=16,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=1,
            eos_token_id=2,
            loss_type="ForCausalLM",
        )
    )


def classifier() -> Any:
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=32,
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
            max_position_embeddings=16,
            hidden_dropout_prob=0.1,
        )
    )


class Sentences(torch.utils.data.Dataset[Any]):
    """As a tokenizer leaves them."""

    def __len__(self) -> int:
        return len(TOKENS)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"input_ids": TOKENS[i].tolist(), "attention_mask": [1] * 10, "labels": KINDS[i]}


CASES: dict[str, tuple[Any, Any]] = {
    "gpt2": (language_model, {"input_ids": TOKENS, "labels": TOKENS}),
    "bert": (classifier, Sentences()),
}


def made(name: str, **more: Any) -> tg.ModuleTask:
    make, data = CASES[name]
    return tg.ModuleTask(initialised(make, 0), "model", data, 4, **more)


@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_that_of_the_model_itself(name: str) -> None:
    task, module = made(name), initialised(CASES[name][0], 0).eval()
    task.module.eval()  # without dropout, whose draws are the task's
    inputs, targets = task.batch(TURN)
    assert targets is None
    loss = module(**inputs).loss
    loss.backward()
    mine = task.gradient(task.start(), TURN)
    named = dict(module.named_parameters())  # a tied tensor once
    grads = [named[n].grad for n in task.layout.names]
    plain = [grad.flatten() for grad in grads if grad is not None]
    assert torch.equal(mine.loss, loss.detach())
    assert torch.equal(mine.grad, torch.cat(plain))


@pytest.mark.parametrize("name", CASES)
def test_it_learns(name: str) -> None:
    spared = ("*bias", "*LayerNorm*" if name == "bert" else "*ln_*")
    run = tg.simulate(
        made(name),
        tg.rules.adamw(0.01, no_decay=spared),
        cluster=tg.Gamma(workers=3),
        updates=60,
        evaluation=tg.Evaluation(60, splits=["train"]),
    )
    first, last = run.history.column("train_loss")
    assert last < first
    assert ("train_accuracy" in run.history.records[-1]) == (name == "bert")


@pytest.mark.parametrize("name", CASES)
def test_the_fast_engine_computes_it_one_by_one_and_says_so(name: str) -> None:
    """By SGD: some gradients are 0 but for rounding, of which Adam makes steps."""
    schedule, rule = tg.schedule(tg.Async(), tg.Gamma(workers=3), 40), tg.rules.sgd(0.05, 0.9)
    said = list[str]()
    exact = tg.execute(schedule, made(name), rule, engine="exact")
    fast = tg.execute(schedule, made(name), rule, engine="fast", say=said.append)
    assert (fast.params - exact.params).abs().max() < 1e-5
    assert any("gradients one by one: a sample is more than" in line for line in said), said


def test_a_metric_sees_logits_and_labels() -> None:
    def f1(outputs: Any, targets: Tensor) -> Tensor:
        found = outputs["logits"].argmax(1)
        return 2 * (found & targets).sum() / (found.sum() + targets.sum()).clamp(min=1)

    task = made("bert", metrics={"f1": f1})
    measured = task.evaluate(task.start(), (), "train")
    task.module.eval()
    with torch.no_grad():
        outputs = task.module(input_ids=TOKENS, attention_mask=torch.ones_like(TOKENS))
    assert measured["f1"] == pytest.approx(f1(outputs, KINDS).item())


def test_it_is_resumed_to_the_bit(tmp_path: Path) -> None:
    """Dropout included: its draws are keyed by worker and step."""
    schedule, rule = tg.schedule(tg.Async(), tg.Gamma(workers=2), 12), tg.rules.adamw(0.01)
    whole = tg.execute(schedule, made("bert"), rule, engine="exact")

    class Killed(Exception):
        pass

    def kill(tick: Any) -> None:
        if tick.updates == 8:
            raise Killed

    saving = tg.Checkpoints(tmp_path, every=5)
    with pytest.raises(Killed):
        tg.execute(schedule, made("bert"), rule, engine="exact", watch=kill, checkpoints=saving)
    saving = tg.Checkpoints(tmp_path, resume=True)
    again = tg.execute(schedule, made("bert"), rule, engine="exact", checkpoints=saving)
    assert torch.equal(again.params, whole.params)


def test_bad_inputs_are_named() -> None:
    with pytest.raises(ValueError, match="forward takes no 'label'; did you mean 'labels'"):
        tg.ModuleTask(language_model(), "model", {"input_ids": TOKENS, "label": TOKENS}, 4)
    with pytest.raises(ValueError, match=r"returns a .*Output.* without one: give it the labels"):
        tg.ModuleTask(language_model(), "model", {"input_ids": TOKENS}, 4)
    task = tg.ModuleTask(classifier(), "cross_entropy", Data.of((TOKENS, KINDS)), 4)
    with pytest.raises(ValueError, match=r"returns a .*Output.*: use loss='model'"):
        task.gradient(task.start(), TURN)
