"""What costs nothing until it is used: names of the package, and commands."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad.cli.app import COMMANDS

STUB = Path(tg.__file__).with_suffix(".pyi")


def loaded(code: str) -> set[str]:
    """Of the packages that take long to import, those that this code imports."""
    end = "print(*sorted({'torch', 'ray', 'matplotlib', 'numpy'} & set(sys.modules)), sep=',')"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\n{end}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.splitlines()[-1].split(",")) - {""}


def test_the_package_alone_imports_nothing_heavy() -> None:
    assert loaded("import tardigrad; tardigrad.__version__; dir(tardigrad)") == set()


def test_a_name_imports_what_it_needs() -> None:
    assert "torch" in loaded("import tardigrad; tardigrad.simulate")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], [], ["list", "rules"]], ids=repr)
def test_help_and_lists_import_nothing_heavy(arguments: list[str]) -> None:
    code = f"""
from tardigrad.cli import main
sys.argv[1:] = {arguments}
try:
    main()
except SystemExit:
    pass
"""
    assert loaded(code) == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_listed_with_what_it_says_of_itself(name: str) -> None:
    place = COMMANDS[name]
    made = place.made(name)
    assert inspect.cleandoc(made.help) == place.text()
    assert made.name == name


def test_whoever_reads_the_code_finds_the_same_names() -> None:
    imported = {
        (node.module, alias.name)
        for node in ast.parse(STUB.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = {(place, name) for place, names in tg.PLACES.items() for name in names}
    assert {(place, name) for place, name in imported if name[0] != "_"} == {
        *found,
        ("tardigrad", "renamed"),
        ("tardigrad", "rules"),
        ("tardigrad.rules", "rates"),
    }


def test_every_name_is_there() -> None:
    for name in tg.__all__:
        assert getattr(tg, name) is not None
    assert set(tg.__all__) <= set(dir(tg))
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        tg.nothing_of_this_name  # type: ignore[attr-defined]  # noqa: B018
