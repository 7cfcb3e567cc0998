"""Hosts of their own on one machine, for root: each with its own network, processes, shared memory
and temporary folder, on a switch whose links can be taken down.

A host is the first process of a namespace of processes, so whatever runs on it ends with it, and
its network and mounts vanish with the last of its processes. Nothing of it is seen outside.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

UNSHARE = ["setpriv", "--pdeathsig", "KILL", "unshare", "--fork", "--kill-child"]
"""It ends with the process that started it, however that ends, and all of it with it."""
NETWORK = [*UNSHARE, "--net"]
MACHINE = [*NETWORK, "--mount", "--uts", "--ipc", "--pid", "--mount-proc"]
FIRST = """
import signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
print("ready", flush=True)
while True:
    time.sleep(1000.0)
"""
"""Like any first process it lets orphans end: Ray asks whether a process is there that may have."""
RAY_FOLDER = Path(tempfile.gettempdir(), "ray")
"""Where Ray keeps its session unless it is told otherwise."""
SHARED_MEMORY = "256m"


class Host:
    """One machine, as far as Linux can pretend it."""

    def __init__(self, name: str, address: str, first: int) -> None:
        self.name, self.address = name, address
        self._first = first

    def command(self, command: Sequence[str]) -> list[str]:
        """What to run here so that it runs there. It ends with the host, not with this."""
        return ["nsenter", "--target", str(self._first), "--all", "--wdns=/", "--", *command]

    def run(self, command: Sequence[str], env: Mapping[str, str]) -> str:
        done = subprocess.run(
            self.command(command), env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{self.name}: {command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def processes(self, title: str) -> list[int]:
        """Those whose command line begins so."""
        return [pid for pid in self._all() if _command_line(pid).startswith(title)]

    def has(self, pid: int) -> bool:
        return pid in self._all()

    def kill(self) -> None:
        """All at once: the kernel ends with the first process all others of its namespace."""
        os.kill(self._first, signal.SIGKILL)

    def _all(self) -> list[int]:
        mine = _network(self._first)
        pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
        return [pid for pid in pids if mine and _network(pid) == mine]


class Switch:
    """What connects the hosts."""

    def __init__(self, first: int) -> None:
        self._first = first

    def down(self, host: Host) -> None:
        """As if its cable were pulled."""
        self._set(host, "down")

    def up(self, host: Host) -> None:
        self._set(host, "up")

    def _set(self, host: Host, how: str) -> None:
        _inside(self._first, f"ip link set {host.name} {how}")


@contextmanager
def hosts(number: int) -> Iterator[tuple[Switch, list[Host]]]:
    """`host1` … at 10.77.0.1 …, without a way to anywhere else; all see the files of this one."""
    RAY_FOLDER.mkdir(exist_ok=True)  # to mount something over it
    with ExitStack() as stack:
        middle = stack.enter_context(_isolated(NETWORK))
        _inside(middle, "ip link add middle type bridge && ip link set middle up")
        made = []
        for one in range(1, number + 1):
            first = stack.enter_context(_isolated(MACHINE))
            host = Host(f"host{one}", f"10.77.0.{one}", first)
            _inside(
                middle,
                f"ip link add {host.name} type veth peer name eth0 netns {first} && "
                f"ip link set {host.name} master middle up",
            )
            _inside(
                first,
                f"hostname {host.name} && ip link set lo up && "
                f"ip address add {host.address}/24 dev eth0 && ip link set eth0 up && "
                f"mount -t tmpfs -o size={SHARED_MEMORY} tmpfs /dev/shm && "
                f"mount -t tmpfs tmpfs {RAY_FOLDER}",
            )
            made.append(host)
        yield Switch(middle), made


@contextmanager
def _isolated(unshare: Sequence[str]) -> Iterator[int]:
    """The first process of namespaces of its own, by its number here."""
    command = [*unshare, sys.executable, "-c", FIRST]
    holder = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/"
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "ready\n", holder.communicate()[1]
        yield int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text())
    finally:
        holder.kill()  # and its child with it, and with that all others
        holder.communicate()


def _inside(first: int, script: str) -> None:
    enter = ["nsenter", "--target", str(first), "--all", "--", "sh", "-ec", script]
    done = subprocess.run(enter, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{script}: {done.stderr}"


def _network(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:  # it has ended
        return ""


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
