"""A disk that all hosts see, and that can fail.

What was appended and not synced may be lost with its host's power, and may be seen late by others.
A process may be killed in the middle of any write.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.simulated_time import SimulatedTime


@dataclass
class SimulatedFile:
    host: str
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0
    named: bool = False
    """Whether its name survives loss of power too."""


@dataclass
class FullDisk:
    """Writes fail; of the first, so many bytes get there."""

    room: int
    syncs: bool
    """Whether what is there can still be synced."""


class SharedDisk:
    """The files. `late`: other hosts see only what was synced."""

    def __init__(self, time: SimulatedTime, late: bool) -> None:
        self.time = time
        self.late = late
        self.files: dict[str, SimulatedFile] = {}
        self.full: dict[str, FullDisk] = {}
        """By host."""

    def lose_power(self, host: str) -> int:
        """What this host had not synced may be gone, or a part of it; how many bytes are."""
        lost = 0
        for name, file in list(self.files.items()):
            if file.host == host and len(file.data) > file.synced:
                left = self.time.random.choice(
                    [file.synced, self.time.random.randint(file.synced, len(file.data))]
                )
                lost += len(file.data) - left
                del file.data[left:]
            if file.host == host and not file.named and self.time.random.random() < 0.5:
                lost += len(file.data)
                del self.files[name]
        return lost


class SimulatedDisk:
    """What one process sees of it. `before(doing, name)` is told before every write, and may raise;
    of an append, it answers how many bytes get there before the process dies, or None."""

    def __init__(
        self,
        shared: SharedDisk,
        host: str,
        before: Callable[[str, str], int | None] = lambda doing, name: None,
    ) -> None:
        self._shared, self._host, self._before = shared, host, before

    def append(self, name: str, data: bytes) -> None:
        torn = self._before("appends", name)
        file = self._shared.files.setdefault(name, SimulatedFile(self._host))
        if torn is not None:
            file.data += data[: torn % (len(data) + 1)]
            self._before("torn", name)
        full = self._shared.full.get(self._host)
        if full is None:
            file.data += data
            return
        file.data += data[: min(full.room, len(data) - 1)]
        full.room = 0
        raise OSError(28, "No space left on device")

    def sync(self, name: str) -> None:
        self._before("syncs", name)
        full = self._shared.full.get(self._host)
        if full is not None and not full.syncs:
            raise OSError(5, "Input/output error")
        file = self._shared.files.get(name)
        if file is not None and self._sees_all(file):
            file.synced = len(file.data)
            file.named = True

    def read(self, name: str) -> bytes | None:
        file = self._shared.files.get(name)
        if file is None:
            return None
        return bytes(file.data if self._sees_all(file) else file.data[: file.synced])

    def create(self, name: str, data: bytes) -> bool:
        self._before("creates", name)
        self._check_room()
        if name in self._shared.files:
            return False
        self._shared.files[name] = SimulatedFile(self._host, bytearray(data), len(data), True)
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._before("replaces", name)
        self._check_room()
        self._shared.files[name] = SimulatedFile(self._host, bytearray(data), len(data), True)

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._shared.files if name.startswith(prefix))

    def remove(self, prefix: str) -> None:
        for name in self.names(prefix):
            del self._shared.files[name]

    def _sees_all(self, file: SimulatedFile) -> bool:
        return file.host == self._host or not self._shared.late

    def _check_room(self) -> None:
        if self._host in self._shared.full:
            raise OSError(28, "No space left on device")


class ReadOnlyDisk:
    """For what only reads."""

    def append(self, name: str, data: bytes) -> None:
        raise NotImplementedError(name)

    def sync(self, name: str) -> None:
        raise NotImplementedError(name)

    def create(self, name: str, data: bytes) -> bool:
        raise NotImplementedError(name)

    def replace(self, name: str, data: bytes) -> None:
        raise NotImplementedError(name)

    def remove(self, prefix: str) -> None:
        raise NotImplementedError(prefix)


class SlowlyRead(ReadOnlyDisk):
    """Reads as a driver does while shards go on writing: each shard's logs at its own moment."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk
        self._logs: dict[str, bytes] = {}

    def read_logs(self, prefix: str) -> None:
        for name in self._disk.names(prefix):
            data = self._disk.read(name)
            assert data is not None
            self._logs[name] = data

    def read(self, name: str) -> bytes | None:
        return self._logs.get(name) if name.startswith("logs/") else self._disk.read(name)

    def names(self, prefix: str) -> list[str]:
        if prefix.startswith("logs/"):
            return sorted(name for name in self._logs if name.startswith(prefix))
        return self._disk.names(prefix)
