"""A disk that all hosts see, and that can fail.

What was appended and not synced may be lost with its host's power, and may be seen late by others.
"""

from dataclasses import dataclass, field

from simulated_time import SimulatedTime


@dataclass
class SimulatedFile:
    host: str
    data: bytearray = field(default_factory=bytearray)
    synced: int = 0


class SharedDisk:
    """The files. `late`: other hosts see only what was synced."""

    def __init__(self, time: SimulatedTime, late: bool) -> None:
        self.time = time
        self.late = late
        self.files: dict[str, SimulatedFile] = {}
        self.full: dict[str, int] = {}
        """Hosts whose writes fail, and of how many bytes of the first a part gets there."""

    def lose_power(self, host: str) -> None:
        """What this host had not synced may be gone, or a part of it."""
        for file in self.files.values():
            if file.host == host and len(file.data) > file.synced:
                del file.data[self.time.random.randint(file.synced, len(file.data)) :]


class SimulatedDisk:
    """What one host sees of it."""

    def __init__(self, shared: SharedDisk, host: str) -> None:
        self._shared, self._host = shared, host

    def append(self, name: str, data: bytes) -> None:
        file = self._shared.files.setdefault(name, SimulatedFile(self._host))
        file.data += data[: self._room(len(data))]
        if self._host in self._shared.full:
            raise OSError(28, "No space left on device")

    def sync(self, name: str) -> None:
        if self._host in self._shared.full:
            raise OSError(28, "No space left on device")
        file = self._shared.files.get(name)
        if file is not None:
            file.synced = len(file.data)

    def read(self, name: str) -> bytes | None:
        file = self._shared.files.get(name)
        if file is None:
            return None
        seen = len(file.data)
        if self._shared.late and file.host != self._host:
            seen = file.synced
        return bytes(file.data[:seen])

    def create(self, name: str, data: bytes) -> bool:
        self._check_room()
        if name in self._shared.files:
            return False
        self._shared.files[name] = SimulatedFile(self._host, bytearray(data), len(data))
        return True

    def replace(self, name: str, data: bytes) -> None:
        self._check_room()
        self._shared.files[name] = SimulatedFile(self._host, bytearray(data), len(data))

    def names(self, prefix: str) -> list[str]:
        return sorted(name for name in self._shared.files if name.startswith(prefix))

    def remove(self, prefix: str) -> None:
        for name in self.names(prefix):
            del self._shared.files[name]

    def _room(self, wanted: int) -> int:
        if self._host not in self._shared.full:
            return wanted
        part = min(self._shared.full[self._host], wanted)
        self._shared.full[self._host] = 0
        return part

    def _check_room(self) -> None:
        if self._host in self._shared.full:
            raise OSError(28, "No space left on device")
