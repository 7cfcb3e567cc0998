"""A page as one file: it needs no other, asks for none, and lets nothing that it shows be code.

What users named (rules, folders, metrics) is data: JSON in which no tag can begin or end, and the
scripts only ever make text of it. Should that fail, the page's policy still lets no script run
but the ones written here, which it knows by their digests, and nothing be loaded.
"""

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.engine import Run
from tardigrad.engine.result_files import write
from tardigrad.report.page.contents import PageRun, run_shown, told_apart
from tardigrad.report.page.page_data import page_data

PAGE = "report.html"
ASSETS = Path(__file__).parent / "assets"
STYLES = ("uplot/uPlot.min.css", "page.css")
SCRIPTS = (
    "dom.js",
    "data.js",
    "theme.js",
    "view.js",
    "lanes.js",
    "panel.js",
    "hover.js",
    "axis.js",
    "player.js",
    "charts.js",
    "curves.js",
    "beside.js",
    "timeline.js",
    "sections.js",
    "main.js",
)


def write_page(runs: Sequence[PageRun], path: str | Path, title: str | None = None) -> Path:
    """The page of one run, or of several on one clock."""
    require(bool(runs), "a page needs a run")
    path = Path(path)
    require(path.suffix == ".html", f"{path} is to be a page: end its name in .html")
    require(path.parent.is_dir(), f"{path} cannot be written: there is no folder {path.parent}")
    write(path, page_text(runs, title or joint_title([one.title for one in runs])))
    return path


def joint_title(titles: Sequence[str]) -> str:
    """What they have in common said once: "mnist mlp, 16 workers (gamma): sync and async"."""
    parts = [title.split(", ") for title in dict.fromkeys(titles)]
    if len(parts) == 1:
        return titles[0]
    alike = [len(set(each)) == 1 for each in zip(*parts, strict=False)]
    same = [*alike, False].index(False)
    rest = [", ".join(each[same:]) for each in parts]
    if not same or not all(rest):
        return " and ".join(dict.fromkeys(titles))
    return f"{', '.join(parts[0][:same])}: {' and '.join(rest)}"


def write_run_page(run: Run, path: str | Path, beside: Run | None = None) -> None:
    """`Run.html`: the arguments are told there."""
    shown = [run_shown(run)] if beside is None else [run_shown(run), run_shown(beside)]
    write_page(told_apart(shown, ["this run", "beside it"]), path)


def page_text(runs: Sequence[PageRun], title: str) -> str:
    style = "\n".join(_asset(name) for name in STYLES)
    code = "\n".join(_asset(name) for name in SCRIPTS)
    licence = f"/*\nuPlot:\n{_asset('uplot/LICENSE')}*/"
    ours = f'(() => {{\n"use strict";\n{code}\n}})();\n'
    script = "\n".join([licence, _asset("uplot/uPlot.iife.min.js"), ours])
    allowed = f"script-src {_digest(script)}; style-src {_digest(style)}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; {allowed}">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<noscript>This page draws itself with scripts; all of them are in this file.</noscript>
<script type="application/json" id="data">{_json(page_data(runs, title))}</script>
<script>{script}</script>
</body>
</html>
"""


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _json(data: dict[str, Any]) -> str:
    """In which nothing is read as a tag."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    found = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
    return f"'sha256-{found}'"
