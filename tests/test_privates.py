"""Tests use what users can use: they reach no private names, and make no objects but by calling.

Excepted are what takes safeguards out of the code, and operators that torch itself names so.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MUTATIONS = {HERE / "simulation" / name for name in ("mutations.py", "mutations_of_rows.py")}
FILES = [path for path in sorted(HERE.rglob("*.py")) if path not in MUTATIONS]
OF_TUPLES = {"_replace", "_asdict", "_fields"}
OF_NOTEBOOKS = {"_repr_html_"}
"""What they call to show an object."""


def private(name: str) -> bool:
    last = name.rpartition(".")[2]
    public = OF_TUPLES | OF_NOTEBOOKS
    return last.startswith("_") and not last.startswith("__") and last not in public


def reached(source: str) -> Iterator[str]:
    """Private names of others that are read, set, imported or patched; and `__new__`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            name = ast.unparse(node)
            torchs = name.startswith("torch.ops.aten.")
            if node.attr == "__new__" or (private(node.attr) and not own and not torchs):
                yield name
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
print(driver._read, driver.__doc__, row._replace(step=3), torch.ops.aten._to_copy)
monkeypatch.setattr(module, "_patched", 1)
monkeypatch.setattr("tardigrad.module._named", 1)
class Own(Theirs):
    def method(self):
        return self._own
"""
    found = {"_imported", "object.__new__", "driver._set", "driver._read", "_patched"}
    assert set(reached(source)) == {*found, "tardigrad.module._named"}
