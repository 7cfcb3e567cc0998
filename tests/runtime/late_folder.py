"""A folder that hosts see as they would over NFS, by a FUSE server of each host's own.

What a host has written to a file, others see once it is synced or closed; what was made or removed
in a folder, they see up to `late_s` later. What it has done itself, it sees at once.

    python -m tests.runtime.late_folder BEHIND PLACE LATE_S KIND

mounts at PLACE what all hosts keep in BEHIND, as a file system `fuse.KIND`, and leaves a process
that serves it. Spoken is the kernel's protocol 7.31 (linux/fuse.h): as much of it as a run needs.
"""

import ctypes
import errno
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = 1
DIRECT_IO = 1
"""The kernel keeps nothing of a file: every read asks."""
SIZE_IS_SET = 1 << 3
MOST_WRITTEN = 128 * 1024
HEADER, ANSWER = struct.Struct("<IIQQIIII"), struct.Struct("<IiQ")
READ = struct.Struct("<QQII")
WRITE_SIZE = 40
ATTRIBUTES = struct.Struct("<6Q10I")
SILENT = {"forget": 2, "interrupt": 36, "batch_forget": 42}


def mount(place: Path, kind: str) -> int:
    """The file through which the kernel asks."""
    file = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={file},rootmode=40000,user_id=0,group_id=0,allow_other"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"late", bytes(place), f"fuse.{kind}".encode(), 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"{place} cannot be mounted")
    return file


class LateFolder:
    def __init__(self, behind: Path, late_s: float) -> None:
        self._behind, self._late_s = behind, late_s
        self._paths = {ROOT: ""}
        self._numbers = {"": ROOT}
        self._unsynced: dict[str, list[tuple[int, bytes]]] = {}
        self._seen: dict[str, tuple[float, set[str]]] = {}
        self.does: dict[int, Callable[[int, bytes], bytes]] = {
            1: self.lookup, 3: self.getattr, 4: self.setattr, 9: self.mkdir, 10: self.unlink,
            11: self.rmdir, 12: self.rename, 13: self.link, 14: self.open, 15: self.read,
            16: self.write, 18: self.close, 20: self.sync, 25: self.close, 26: self.init,
            27: self.opendir, 28: self.readdir, 29: self.nothing, 30: self.nothing, 35: self.create,
            45: self.rename2,
        }  # fmt: skip

    # What is seen.

    def _names(self, folder: str) -> set[str]:
        at_s, names = self._seen.get(folder, (float("-inf"), set()))
        if time.monotonic() - at_s > self._late_s:
            at_s, names = self._seen[folder] = time.monotonic(), set(self._list(folder))
        return names

    def _list(self, folder: str) -> list[str]:
        return os.listdir(self._behind / folder)

    def _made(self, folder: str, name: str) -> str:
        self._names(folder).add(name)
        return os.path.join(folder, name)

    def _gone(self, folder: str, name: str) -> str:
        self._names(folder).discard(name)
        return os.path.join(folder, name)

    def _exclusively(self, folder: str, name: str, make: Callable[[Path], None]) -> str:
        """Whether it is there already, the server knows; and now this host does too."""
        path = os.path.join(folder, name)
        try:
            make(self._behind / path)
        except FileExistsError:
            self._seen.pop(folder, None)
            raise
        return self._made(folder, name)

    def _attributes(self, path: str) -> bytes:
        s = os.lstat(self._behind / path)
        ends = [offset + len(data) for offset, data in self._unsynced.get(path, [])]
        return ATTRIBUTES.pack(
            s.st_ino, max([s.st_size, *ends]), s.st_blocks, int(s.st_atime), int(s.st_mtime),
            int(s.st_ctime), 0, 0, 0, s.st_mode, s.st_nlink, s.st_uid, s.st_gid, 0, 4096, 0,
        )  # fmt: skip

    def _entry(self, path: str) -> bytes:
        attributes = self._attributes(path)
        number = self._numbers.setdefault(path, len(self._numbers) + ROOT)
        self._paths[number] = path
        return struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + attributes

    # What the kernel asks.

    def init(self, node: int, data: bytes) -> bytes:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 16, 12, MOST_WRITTEN, 1, 32, *[0] * 9)

    def nothing(self, node: int, data: bytes) -> bytes:
        return b""

    def lookup(self, node: int, data: bytes) -> bytes:
        folder, name = self._paths[node], _text(data)
        if name not in self._names(folder):
            raise FileNotFoundError(errno.ENOENT, name)
        return self._entry(os.path.join(folder, name))

    def getattr(self, node: int, data: bytes) -> bytes:
        return bytes(16) + self._attributes(self._paths[node])

    def setattr(self, node: int, data: bytes) -> bytes:
        if struct.unpack_from("<I", data)[0] & SIZE_IS_SET:
            self._flush(self._paths[node])
            os.truncate(self._behind / self._paths[node], struct.unpack_from("<Q", data, 16)[0])
        return self.getattr(node, data)

    def mkdir(self, node: int, data: bytes) -> bytes:
        return self._entry(self._exclusively(self._paths[node], _text(data[8:]), os.mkdir))

    def link(self, node: int, data: bytes) -> bytes:
        old = self._paths[struct.unpack_from("<Q", data)[0]]
        self._flush(old)

        def make(new: Path) -> None:
            os.link(self._behind / old, new)

        return self._entry(self._exclusively(self._paths[node], _text(data[8:]), make))

    def unlink(self, node: int, data: bytes) -> bytes:
        path = self._gone(self._paths[node], _text(data))
        self._unsynced.pop(path, None)
        os.unlink(self._behind / path)
        return b""

    def rmdir(self, node: int, data: bytes) -> bytes:
        os.rmdir(self._behind / self._gone(self._paths[node], _text(data)))
        return b""

    def rename(self, node: int, data: bytes, before: int = 8) -> bytes:
        into = self._paths[struct.unpack_from("<Q", data)[0]]
        old, new = (part.decode() for part in data[before:].rstrip(b"\0").split(b"\0"))
        source, target = self._gone(self._paths[node], old), self._made(into, new)
        self._flush(source)
        os.rename(self._behind / source, self._behind / target)
        number = self._numbers.pop(source)
        self._paths[number], self._numbers[target] = target, number
        return b""

    def rename2(self, node: int, data: bytes) -> bytes:
        return self.rename(node, data, before=16)

    def open(self, node: int, data: bytes) -> bytes:
        writes = struct.unpack_from("<I", data)[0] & os.O_ACCMODE != os.O_RDONLY
        return struct.pack("<QII", writes, DIRECT_IO, 0)

    def close(self, node: int, data: bytes) -> bytes:
        (writes,) = struct.unpack_from("<Q", data)
        return self.sync(node, data) if writes else b""

    def opendir(self, node: int, data: bytes) -> bytes:
        return bytes(16)

    def create(self, node: int, data: bytes) -> bytes:
        folder, name = self._paths[node], _text(data[16:])
        flags = struct.unpack_from("<I", data)[0] & (os.O_EXCL | os.O_TRUNC)

        def make(path: Path) -> None:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644))

        return self._entry(self._exclusively(folder, name, make)) + self.open(node, data)

    def read(self, node: int, data: bytes) -> bytes:
        path = self._paths[node]
        _, offset, size, _ = READ.unpack_from(data)
        content = bytearray((self._behind / path).read_bytes())
        for start, written in self._unsynced.get(path, []):
            content[start : start + len(written)] = written
        return bytes(content[offset : offset + size])

    def write(self, node: int, data: bytes) -> bytes:
        _, offset, size, _ = READ.unpack_from(data)
        written = data[WRITE_SIZE : WRITE_SIZE + size]
        self._unsynced.setdefault(self._paths[node], []).append((offset, written))
        return struct.pack("<II", size, 0)

    def sync(self, node: int, data: bytes) -> bytes:
        self._flush(self._paths[node])
        return b""

    def _flush(self, path: str) -> None:
        waiting = self._unsynced.pop(path, [])
        if waiting:
            with open(self._behind / path, "r+b") as file:
                for offset, written in waiting:
                    file.seek(offset)
                    file.write(written)

    def readdir(self, node: int, data: bytes) -> bytes:
        _, offset, size, _ = READ.unpack_from(data)
        entries = bytearray()
        names = [".", "..", *sorted(self._names(self._paths[node]))]
        for place, name in enumerate(names[offset:], offset + 1):
            encoded = name.encode()
            entry = struct.pack("<QQII", place, place, len(encoded), 0) + encoded
            entry += bytes(-len(entry) % 8)
            if len(entries) + len(entry) > size:
                break
            entries += entry
        return bytes(entries)


def serve(file: int, folder: LateFolder) -> None:
    """Until it is unmounted."""
    while True:
        try:
            asked = os.read(file, MOST_WRITTEN + 4096)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return
            if error.errno in (errno.EINTR, errno.ENOENT):  # who asked does not wait any more
                continue
            raise
        _, kind, unique, node, *_ = HEADER.unpack_from(asked)
        if kind in SILENT.values():
            continue
        code, answer = 0, b""
        try:
            if kind not in folder.does:
                raise OSError(errno.ENOSYS, "")
            answer = folder.does[kind](node, asked[HEADER.size :])
        except OSError as error:
            code = -(error.errno or errno.EIO)
        os.write(file, ANSWER.pack(ANSWER.size + len(answer), code, unique) + answer)


def _text(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode()


def main(behind: str, place: str, late_s: str, kind: str) -> None:
    file = mount(Path(place), kind)
    if os.fork():
        return
    for stream in (0, 1, 2):  # nobody shall wait for them to end
        os.dup2(os.open(os.devnull, os.O_RDWR), stream)
    serve(file, LateFolder(Path(behind), float(late_s)))


if __name__ == "__main__":
    main(*sys.argv[1:])
