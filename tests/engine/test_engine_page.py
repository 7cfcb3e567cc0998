"""docs/engine.md names only what is there."""

import ast
import re
from pathlib import Path
from typing import get_args

import tardigrad
from tardigrad.engine.unsuited import Reason

ENGINE = Path(tardigrad.__file__).parent / "engine"
PAGE = (ENGINE.parents[2] / "docs" / "engine.md").read_text(encoding="utf-8")


def names_of(source: str) -> set[str]:
    """Classes, functions, attributes and words of `Literal` types: whatever a page may name."""
    out: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            out.add(node.name)
        elif isinstance(node, ast.Attribute):
            out.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            out.add(node.value)
    return out


def test_the_page_names_what_there_is() -> None:
    files = {path.relative_to(ENGINE).as_posix() for path in ENGINE.rglob("*.py")}
    short = files | {name.rpartition("/")[2] for name in files}
    known = set().union(*(names_of((ENGINE / name).read_text("utf-8")) for name in files))
    told = re.findall(r"`([^`\n]+)`", PAGE)
    assert len(told) > 40
    for name in told:
        if name.endswith(".py"):
            assert name in short, name
        else:
            assert set(name.split(".")) <= known, name
    for name in re.findall(r"[a-z_/]+\.py\b", PAGE):
        assert name in short or name == "architecture.py", name


def test_the_page_tells_every_reason_to_fall_back() -> None:
    rows = re.findall(r"^\| ([a-z, ]+) \| `", PAGE.split("## What falls back")[1], flags=re.M)
    assert {reason for row in rows for reason in row.split(", ")} == set(get_args(Reason))
