"""Who may import whom:

cli → (bench, reproduce) → planning → experiment → (report, runtime) → (recording, transport),
recording → engine → scheduling → (protocol, clusters), protocol → (policies, links),
engine → work → (rules, tasks), all → core. Ray stays in the runtime and in the benchmark that
measures it; control knows nothing of tensors.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tardigrad

ROOT = Path(tardigrad.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

CONTROL = {"policies", "links", "clusters"}
NUMBERS = {"rules", "tasks", "work"}
ROOMS = {"protocol", "scheduling", "engine", "recording", "transport"}
BELOW = {"core"} | CONTROL | NUMBERS | ROOMS
RESULTS = {"report", "runtime"}

MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    **{room: {"core"} for room in CONTROL | NUMBERS},
    "work": {"core", "rules", "tasks"},
    "protocol": {"core", "policies", "links"},
    "scheduling": {"core", "protocol"} | CONTROL,
    "engine": {"core", "scheduling"} | CONTROL | NUMBERS,
    "recording": {"core", "protocol", "scheduling", "engine"} | CONTROL | NUMBERS,
    "transport": {"core"},
    **dict.fromkeys(RESULTS, BELOW),
    "experiment": BELOW | RESULTS,
    "planning": BELOW | RESULTS | {"experiment"},
    **dict.fromkeys(("bench", "reproduce"), BELOW | RESULTS | {"experiment", "planning"}),
    "renamed": set(),
    "__init__": BELOW | RESULTS | {"experiment", "planning", "renamed"},
    "cli": BELOW | RESULTS | {"experiment", "planning", "bench", "reproduce", "__init__"},
    "__main__": {"cli"},
}


def room_of(path: Path) -> str:
    """The folder or file directly under the package."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(source: str) -> Iterator[str]:
    """Every module named by an import, wherever it stands, as a dotted name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "write imports with their full name"
            if node.module == "tardigrad":
                yield from (f"tardigrad.{alias.name}" for alias in node.names)
            else:
                yield str(node.module)


def rooms_imported(source: str) -> set[str]:
    """Rooms of the package; a name that is none is something of the package itself."""
    out = set()
    for name in imported(source):
        package, *inner = name.split(".")
        if package == "tardigrad":
            is_room = inner and ((ROOT / inner[0]).is_dir() or (ROOT / f"{inner[0]}.py").exists())
            out.add(inner[0] if is_room else "__init__")
    return out


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(ROOT)) for p in FILES])
def test_imports_go_one_way(path: Path) -> None:
    room = room_of(path)
    assert room in MAY_IMPORT, f"say in MAY_IMPORT what the new room {room} may import"
    wrong = rooms_imported(path.read_text()) - MAY_IMPORT[room] - {room}
    assert not wrong, f"{room} must not import {sorted(wrong)}"


def test_no_name_hides_a_room() -> None:
    """`import tardigrad.room.file as name` looks the room up as an attribute of the package."""
    rooms = {room_of(path) for path in FILES}
    named = {name: getattr(tardigrad, name) for name in dir(tardigrad) if name in rooms}
    assert [name for name, value in named.items() if not inspect.ismodule(value)] == []
    import tardigrad.scheduling.analysis as analysis

    assert analysis.Summary.of(tardigrad.schedule(cluster=tardigrad.Gamma(workers=2), updates=3))


def test_the_table_of_rooms_has_no_circle() -> None:
    done: set[str] = set()
    while len(done) < len(MAY_IMPORT):
        ready = {r for r, below in MAY_IMPORT.items() if r not in done and below - {r} <= done}
        assert ready, f"a circle among {sorted(set(MAY_IMPORT) - done)}"
        done |= ready


def test_the_page_on_architecture_tells_the_imports_there_are() -> None:
    found: dict[str, set[str]] = {}
    for path in FILES:
        found.setdefault(room_of(path), set()).update(rooms_imported(path.read_text()))
    page = (ROOT.parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    told = {
        room: set(filter(None, imports.strip().split(", ")))
        for room, imports in re.findall(r"^\| `(\w+)` \|[^|]*\|([^|]*)\|$", page, flags=re.M)
    }
    assert told == {
        room: imports - {room, "__init__"}
        for room, imports in found.items()
        if (ROOT / room).is_dir()
    }


def rooms_that_import(package: str) -> set[str]:
    return {
        room_of(path)
        for path in FILES
        if any(name.split(".")[0] == package for name in imported(path.read_text()))
    }


def test_ray_is_imported_where_it_is_run_or_measured() -> None:
    assert rooms_that_import("ray") <= {"runtime", "bench"}


def test_control_knows_nothing_of_tensors() -> None:
    assert not rooms_that_import("torch") & {"policies", "clusters", "protocol", "scheduling"}


def test_nothing_is_pickled() -> None:
    """Files from outside are safetensors, JSON, TOML or CSV."""
    loaders = {"pickle", "dill", "cloudpickle", "marshal", "shelve"}
    assert not any(rooms_that_import(loader) for loader in loaders)
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                assert (node.value.id, node.attr) != ("torch", "load"), path


def test_the_guard_sees_every_form_of_import() -> None:
    source = """
import ray.util
from tardigrad import rules, Schedule
from tardigrad.engine.exact import Exact
def later():
    import tardigrad.cli
"""
    assert set(imported(source)) >= {"ray.util", "tardigrad.rules", "tardigrad.cli"}
    assert rooms_imported(source) == {"rules", "engine", "cli", "__init__"}
