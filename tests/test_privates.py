"""Tests use what users can use: they reach no private names, and make no objects but by calling.

Rooms that are not there yet are named here, and what takes safeguards out of the code.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NOT_YET = {"engine", "transport"}
MUTATIONS = HERE / "simulation" / "mutations.py"
FILES = [
    path
    for path in sorted(HERE.rglob("*.py"))
    if path.relative_to(HERE).parts[0] not in NOT_YET and path != MUTATIONS
]
OF_TUPLES = {"_replace", "_asdict", "_fields"}


def private(name: str) -> bool:
    last = name.rpartition(".")[2]
    return last.startswith("_") and not last.startswith("__") and last not in OF_TUPLES


def reached(source: str) -> Iterator[str]:
    """Private names of others that are read, set, imported or patched; and `__new__`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr == "__new__" or (private(node.attr) and not own):
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("setattr"):
            texts = [a.value for a in node.args if isinstance(a, ast.Constant)]
            yield from (text for text in texts if isinstance(text, str) and private(text))


@pytest.mark.parametrize("path", FILES, ids=[str(p.relative_to(HERE)) for p in FILES])
def test_no_test_reaches_a_private_name(path: Path) -> None:
    assert list(reached(path.read_text(encoding="utf-8"))) == []


def test_the_guard_sees_every_way_to_reach_one() -> None:
    source = """
from tardigrad.module import _imported, fine
driver = object.__new__(Driver)
driver._set = 3
print(driver._read, driver.__doc__, row._replace(step=3))
monkeypatch.setattr(module, "_patched", 1)
monkeypatch.setattr("tardigrad.module._named", 1)
class Own(Theirs):
    def method(self):
        return self._own
"""
    found = {"_imported", "object.__new__", "driver._set", "driver._read", "_patched"}
    assert set(reached(source)) == {*found, "tardigrad.module._named"}
