"""What the documents show, run: Python with its output, files, commands with what they answer.

The python blocks of a document run one after another in one namespace; a text block holds what the
block before it prints. A toml block begins with its file's name, and so does a python block that is
a file: it is written, not run. In a console block, lines that
begin with $ are commands, and lines below one are what it says. What needs other machines is in sh
and yaml blocks: yaml is read, and every command of Ray or ours must exist with all its options.
"""

import contextlib
import io
import re
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from tardigrad.cli import main
from tardigrad.cli.app import app

ROOT = Path(__file__).parent.parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]
FILE = re.compile(r"# \w+\.py\n")
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.py"))


class Block(NamedTuple):
    language: str
    line: int
    text: str


def blocks(document: str) -> list[Block]:
    text = (ROOT / document).read_text(encoding="utf-8")
    fences = re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.M | re.S)
    return [Block(f[1], text[: f.start(2)].count("\n"), f[2]) for f in fences]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_shows_what_happens(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    names: dict[str, Any] = {"__name__": "document"}
    printed = ""
    for language, line, text in blocks(document):
        if language == "toml" or (language == "python" and FILE.match(text)):
            Path(text.partition("\n")[0].removeprefix("# ")).write_text(text)
        elif language == "python":
            assert printed == "", f"{document}:{line}: the block before prints, but shows nothing"
            # Blank lines before it, so that a traceback names the document's own line.
            code = compile("\n" * line + text, str(ROOT / document), "exec")
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(code, names)
            printed = out.getvalue()
        elif language == "text":
            assert printed == text, f"{document}:{line}"
            printed = ""
        elif language == "console":
            check_commands(text, monkeypatch)
        elif language == "yaml":
            check_yaml(text)
        elif language == "sh":
            check_options(text)
        else:
            raise AssertionError(f"{document}:{line}: nothing checks a block of {language}")
    assert printed == ""


def check_commands(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, answer = part.partition("\n")
        words = command.partition("#")[0].split()
        if words[0] == "make":
            assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
            continue
        assert words[0] == "tardigrad"
        monkeypatch.setattr(sys, "argv", words)
        out, err, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                code = int(end.code or 0)
        if answer:
            said = [text.getvalue().replace(str(Path.cwd()), "HERE") for text in (out, err)]
            assert answer in said
        else:
            assert code == 0, err.getvalue()


def check_yaml(text: str) -> None:
    """It can be read, and the commands of Ray in it exist."""
    pending = [pytest.importorskip("yaml").safe_load(text)]
    while pending:
        node = pending.pop()
        if isinstance(node, str):
            check_options(node)
        elif isinstance(node, dict | list):
            pending += node.values() if isinstance(node, dict) else node


def check_options(text: str) -> None:
    ray = pytest.importorskip("ray.scripts.scripts").cli.commands
    ours = get_command(app)
    assert isinstance(ours, TyperGroup)
    for found in re.finditer(r"\b(ray|tardigrad) ([a-z-]+)( [^#'\n]*)?", text):
        program, name, rest = found[1], found[2], found[3] or ""
        commands = ray if program == "ray" else ours.commands
        assert name in commands, found[0]
        command: Any = ray[name] if program == "ray" else ours.get_command(Context(ours), name)
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        assert set(re.findall(r"--[a-z-]+", rest)) <= known, found[0]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_a_document_shows_the_whole_example(example: Path) -> None:
    """All but the line that says what the file is."""
    whole = example.read_text(encoding="utf-8")
    code = whole.partition('"""\n\n')[2]
    shown = [block.text for page in DOCUMENTS for block in blocks(page)]
    assert code in [FILE.sub("", text, count=1) for text in shown]
    assert len(whole.splitlines()) < 40


def test_what_documents_point_to_is_there() -> None:
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
        for target in re.findall(r"\]\(([^)#:]+)\)", prose):
            assert (ROOT / document).parent.joinpath(target).exists(), target
        for path in re.findall(r"`pytest (\S+)`", text):
            assert (ROOT / path).exists(), path
        for path in re.findall(r"`((?:src|tests)/\S+\.py)`", text):
            assert (ROOT / path).exists(), path


def test_every_dependency_that_make_installs_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in ("ray", "dev"):
        wanted += project["optional-dependencies"][extra]
    pinned = {
        line.partition("==")[0]
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    names = {re.split(r"[<>=\[]", requirement)[0] for requirement in wanted}
    assert names <= pinned
    assert len(names) > 10
