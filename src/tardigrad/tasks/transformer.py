"""A small character-level language model."""

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tardigrad.core.checks import one_of
from tardigrad.tasks import data as data_sets
from tardigrad.tasks.checks import at_least
from tardigrad.tasks.losses import token_cross_entropy
from tardigrad.tasks.module import ModuleTask, initialised
from tardigrad.tasks.precision import Precision
from tardigrad.tasks.sampling import Sampling
from tardigrad.tasks.split import Data, Split
from tardigrad.tasks.structure import known_layer


def char_transformer(
    *,
    layers: int = 2,
    heads: int = 4,
    width: int = 64,
    context: int = 64,
    dropout: float = 0.0,
    data: str = "tiny_shakespeare",
    batch_size: int = 16,
    sampling: Sampling = "independent",
    workers: int | None = None,
    seed: int = 0,
    validation: int | None = None,
    train_size: int | None = None,
    device: str = "cpu",
    dtype: str = "float32",
    precision: Precision = "full",
    data_folder: str | Path | None = None,
) -> ModuleTask:
    """Tiny Shakespeare (or enwik8) with a small character-level transformer, loss in nats.

    A sample is `context` characters; windows do not overlap, so an epoch reads the text once.
    The last twentieth of the text is the test set; before it lie `validation` characters (by
    default a twentieth too). `train_size` takes only the first so many characters of the rest.

    Args:
        layers: blocks of attention and feed-forward.
        heads: of attention.
        width: numbers that a character is represented by.
        context: characters in a sample.
        dropout: share of numbers that are dropped in training.
    """
    at_least("layers", layers, 1)
    at_least("heads", heads, 1)
    at_least("context", context, 1)
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, got {dropout}")
    if width % heads:
        raise ValueError(
            f"width must be a multiple of heads = {heads}, got {width}: try {heads * 16}"
        )
    one_of("data", data, ("tiny_shakespeare", "enwik8"))
    arrays = data_sets.load(data, data_folder)
    assert isinstance(arrays, data_sets.Text)
    alphabet, tokens = _tokens(arrays.text)
    return ModuleTask(
        initialised(lambda: Transformer(alphabet, layers, heads, width, context, dropout), seed),
        token_cross_entropy,
        _windows(tokens, context, validation, train_size),
        batch_size,
        sampling=sampling,
        workers=workers,
        seed=seed,
        device=device,
        dtype=dtype,
        precision=precision,
    )


@known_layer(takes=2, gives=3)
class Transformer(nn.Module):
    """Pre-norm causal transformer (GPT-2's arrangement), learned positions, tied embeddings."""

    def __init__(
        self, alphabet: int, layers: int, heads: int, width: int, context: int, dropout: float
    ) -> None:
        super().__init__()
        self.token = nn.Embedding(alphabet, width)
        self.position = nn.Embedding(context, width)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(_Block(heads, width, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.apply(_small)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens.long()) + self.position.weight[: tokens.shape[-1]]
        x = self.drop(x)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.token.weight)


@known_layer(takes=3, gives=3)
class _Block(nn.Module):
    def __init__(self, heads: int, width: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, width = x.shape
        parts = self.qkv(self.norm1(x)).view(batch, time, 3, self.heads, width // self.heads)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)
        # Written out: torch's fused attention has no batching rule, so could not be vmapped.
        later = torch.ones(time, time, dtype=torch.bool, device=x.device).triu(1)
        scores = (query @ key.transpose(-2, -1)) * query.shape[-1] ** -0.5
        mixed = scores.masked_fill(later, float("-inf")).softmax(-1) @ value
        x = x + self.drop(self.out(mixed.transpose(1, 2).reshape(batch, time, width)))
        added: Tensor = self.drop(self.down(F.gelu(self.up(self.norm2(x)))))
        return x + added


def _small(layer: nn.Module) -> None:
    """GPT-2's initialisation."""
    if isinstance(layer, nn.Linear | nn.Embedding):
        nn.init.normal_(layer.weight, std=0.02)
    if isinstance(layer, nn.Linear) and layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _tokens(text: data_sets.Bytes) -> tuple[int, Tensor]:
    """How many different characters there are, and the text as their numbers (one byte each)."""
    used = np.flatnonzero(np.bincount(text, minlength=256))
    number = np.zeros(256, dtype=np.uint8)
    number[used] = np.arange(len(used))
    return len(used), torch.from_numpy(number[text])


def _windows(tokens: Tensor, context: int, validation: int | None, train_size: int | None) -> Data:
    held = len(tokens) // 20 if validation is None else validation
    test = len(tokens) // 20
    left = len(tokens) - test - held
    size = left if train_size is None else train_size
    if held and held <= context:
        raise ValueError(
            f"validation = {held} characters is less than one context of {context}: use 0 or more"
        )
    if not context < size <= left:
        raise ValueError(
            f"train_size = {size} must lie above context = {context} and not above the "
            f"{left} characters that are left to train on"
        )
    cut = [tokens[:size], tokens[left : left + held], tokens[left + held :]]
    train, valid, tested = (_window(part, context) if len(part) else None for part in cut)
    assert train is not None
    return Data(train, valid, tested)


def _window(text: Tensor, context: int) -> Split:
    count = (len(text) - 1) // context
    inputs, targets = text[: count * context], text[1 : count * context + 1]
    return Split(inputs.view(count, context), targets.view(count, context))
