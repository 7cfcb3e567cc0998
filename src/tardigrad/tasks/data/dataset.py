"""One data set: what it is, how its file is laid out and verified, where it comes from.

A set is stored as one file of plain bytes, verified by SHA-256 on every load. An image set is its
training images, training labels, test images, test labels, one after another; a text is itself.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tardigrad.tasks.data.sources import DataSource

Bytes = npt.NDArray[np.uint8]


class DataError(ValueError):
    """A data set that cannot be had, or is not what it should be."""


@dataclass(frozen=True)
class Images:
    """Pixels (samples, channels, height, width) from 0 to 255, and a class for each."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


@dataclass(frozen=True)
class Text:
    """A text as bytes."""

    text: Bytes


RawArrays = Images | Text


@dataclass(frozen=True)
class Dataset:
    """What is pinned about a data set."""

    name: str
    what: str
    sha256: str
    """Of the stored file."""
    sources: tuple[DataSource, ...]
    train: int
    """Training images; for a text its bytes."""
    test: int = 0
    image: tuple[int, int, int] | None = None
    """Channels, height and width; None for a text."""
    published: Callable[[RawArrays], str | None] = field(default=lambda arrays: None)
    """What is wrong against what the authors published, or None."""

    @property
    def size_bytes(self) -> int:
        per_sample = 1 if self.image is None else math.prod(self.image) + 1
        return (self.train + self.test) * per_sample

    def file(self, folder: Path) -> Path:
        return folder / (f"{self.name}.txt" if self.image is None else f"{self.name}.bin")

    def arrays(self, raw: Bytes) -> RawArrays:
        """The arrays in the stored bytes, as views."""
        if self.image is None:
            return Text(raw)
        pixels = math.prod(self.image)
        sizes = [self.train * pixels, self.train, self.test * pixels, self.test]
        parts = np.split(raw, np.cumsum(sizes)[:-1])
        train, test = (part.reshape(-1, *self.image) for part in (parts[0], parts[2]))
        return Images(train, parts[1], test, parts[3])

    def fault(self, raw: Bytes) -> str | None:
        """What is wrong with these bytes, or None."""
        if len(raw) != self.size_bytes:
            return f"it has {len(raw):,} bytes, expected {self.size_bytes:,}"
        digest = hashlib.sha256(raw.data).hexdigest()
        if digest != self.sha256:
            return f"its SHA-256 is {digest}, expected {self.sha256}"
        return None

    def fault_of_new(self, raw: Bytes) -> str | None:
        """The same for bytes that just came, which are also held against published figures."""
        if len(raw) == self.size_bytes and (wrong := self.published(self.arrays(raw))) is not None:
            return wrong
        return self.fault(raw)
