"""The documentation site: its pages are there, and every rule and policy is told of."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tardigrad.links import CODECS
from tardigrad.policies import POLICIES
from tardigrad.reproduce import CLAIMS
from tardigrad.rules import RULES
from tardigrad.work import WORKS

ROOT = Path(__file__).parent.parent
GENERATED = {"index", "contributing", "changelog", "results", "api", "claims"}
TABLES = {"rules", "policies", "clusters", "links", "codecs", "works", "tasks", "rates", "weights"}


def test_every_page_of_the_menu_is_there_and_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    named = set(re.findall(r": (\w+)\.md$", menu, flags=re.M))
    assert named - GENERATED - TABLES == {path.stem for path in (ROOT / "docs").glob("*.md")}


def test_every_rule_and_policy_is_told_of() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/site/reference.py"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    told = set(re.findall(r"^## (\w+)$", done.stdout, flags=re.M))
    assert set(RULES) | set(POLICIES) | set(CODECS) | set(WORKS) <= told


def test_every_claim_is_told_of_with_its_verdict() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "docs/site/reference.py", "claims"],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    told = re.findall(r"^### (\w+)$", done.stdout, flags=re.M)
    assert told == [claim.id for claim in CLAIMS]
    assert done.stdout.count("| verdict | **") == len(told)


@pytest.mark.stress
@pytest.mark.skipif(find_spec("mkdocs") is None, reason="mkdocs is not here: make site installs it")
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    folder = str(tmp_path / "site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    for page in (tmp_path / "site").rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        fetched = re.findall(r"<(?:script|img|iframe)[^>]+src=\"?https?://[^\"> ]+", text)
        fetched += re.findall(r"<link[^>]+href=\"?https?://[^\"> ]+\.(?:css|woff2?)", text)
        assert not fetched, page
