"""What a spec can name, read from the source: importing it would take torch a second or more."""

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]


class Listed(NamedTuple):
    """One kind of name: the file and the table that its names stand in, and its registry in
    `experiment.spec`."""

    file: str
    table: str
    registered: str

    @property
    def registry(self) -> Any:
        return getattr(import_module("tardigrad.experiment.spec"), self.registered)

    def lines(self) -> list[tuple[str, str]]:
        """Each name, and the first line that its docstring says."""
        path = ROOT / self.file
        found = _definition(path, self.table)
        assert isinstance(found, ast.AnnAssign)
        return [(n, _docstring(path, maker).partition("\n")[0]) for n, maker in _names(found)]


LISTS = {
    "rules": Listed("rules/catalogue.py", "RULES", "RULE"),
    "policies": Listed("policies/__init__.py", "POLICIES", "POLICY"),
    "clusters": Listed("clusters/__init__.py", "CLUSTERS", "CLUSTER"),
    "links": Listed("links/__init__.py", "LINKS", "LINK"),
    "codecs": Listed("links/__init__.py", "CODECS", "CODEC"),
    "works": Listed("work/__init__.py", "WORKS", "WORK"),
    "tasks": Listed("tasks/__init__.py", "TASKS", "TASK"),
    "rates": Listed("rules/rates.py", "RATES", "RATE"),
    "weights": Listed("rules/weights.py", "WEIGHTS", "WEIGHT"),
    "loggers": Listed("experiment/loggers/__init__.py", "LOGGERS", "LOGGER"),
}


def _names(table: ast.AnnAssign) -> Iterator[tuple[str, str]]:
    """Of a dict that is spelled out, or `{factory.__name__: factory for factory in (…)}`."""
    if isinstance(table.value, ast.Dict):
        for key, maker in zip(table.value.keys, table.value.values, strict=True):
            assert isinstance(key, ast.Constant)
            yield str(key.value), ast.unparse(maker)
        return
    assert isinstance(table.value, ast.DictComp)
    makers = table.value.generators[0].iter
    assert isinstance(makers, ast.Tuple)
    yield from ((ast.unparse(maker), ast.unparse(maker)) for maker in makers.elts)


def _docstring(path: Path, name: str) -> str:
    """Of a function or class, wherever the file has it from."""
    node = _definition(path, name)
    if isinstance(node, ast.ImportFrom):
        return _docstring(_file(str(node.module)), name)
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    return ast.get_docstring(node) or ""


def _definition(path: Path, name: str) -> ast.stmt:
    for node in _parsed(path).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
            return node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return node
    raise LookupError(f"{path} has no {name}")


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split(".")[1:])
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
