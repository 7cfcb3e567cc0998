"""One name, one thing: what a module offers under a public name, no other module does."""

import ast
from collections import defaultdict
from pathlib import Path

import tardigrad

ROOT = Path(tardigrad.__file__).parent


def offered(source: str) -> set[str]:
    """Public classes, functions and type aliases at the top of a module; constants are its own."""
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return {name for name in names if not name.startswith("_") and not name.isupper()}


def test_public_names_exist_once() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in sorted(ROOT.rglob("*.py")):
        inner = path.relative_to(ROOT)
        if inner.parts[0] != "cli":
            for name in offered(path.read_text(encoding="utf-8")):
                homes[name].append(inner.as_posix())
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def test_the_guard_sees_what_a_module_offers() -> None:
    source = "class Apple: ...\ndef bake(): ...\nWatch = list[int]\nLIMIT = 3\n_own = 1\n"
    assert offered(source) == {"Apple", "bake", "Watch"}
