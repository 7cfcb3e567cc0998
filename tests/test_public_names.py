"""What people use and extend is in `tardigrad` itself, documented, and typed."""

import importlib.resources
import inspect
import re
import tomllib
from pathlib import Path

import pytest

import tardigrad as tg

EXTENDED = (
    "Codec",
    "Correction",
    "Gate",
    "Layout",
    "Link",
    "Optimizer",
    "Policy",
    "Spec",
    "StepTimes",
    "Task",
    "TimedCluster",
    "replay",
)
MODULES = ("__version__", "rates", "rules")


@pytest.mark.parametrize("name", [name for name in tg.__all__ if name not in MODULES])
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(tg, name)
    doc = inspect.getdoc(value)
    assert doc
    assert not doc.startswith(f"{name}(")  # what dataclasses and named tuples write themselves


def test_completion_offers_public_names_alone() -> None:
    assert {name for name in dir(tg) if not name.startswith("__")} <= set(tg.__all__)


@pytest.mark.parametrize("name", EXTENDED)
def test_what_people_extend_is_public(name: str) -> None:
    assert name in tg.__all__
    value = getattr(tg, name)
    assert value.__name__ == name
    assert value.__module__.startswith("tardigrad.")
    page = Path(__file__).parent.parent / "docs/own_code.md"
    assert re.search(rf"`tg\.{name}\b", page.read_text(encoding="utf-8"))


def test_the_package_says_that_it_has_types() -> None:
    """Everything under the package goes into the wheel."""
    assert importlib.resources.files("tardigrad").joinpath("py.typed").is_file()
    project = Path(__file__).parent.parent / "pyproject.toml"
    wheel = tomllib.loads(project.read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/tardigrad"]}
