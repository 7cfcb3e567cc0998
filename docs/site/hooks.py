"""What the site has beside the pages in docs/: those that stand elsewhere in the project, and those
that are written from the code."""

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from reference import TABLES, api_page, claims_page, pictures, table_page  # noqa: E402

ELSEWHERE = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "results.md": "results/README.md",
}


def on_files(files: Any, config: Any) -> Any:
    for page, source in ELSEWHERE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text, source)))
    for table in TABLES:
        files.append(File.generated(config, f"{table}.md", content=table_page(table)))
    files.append(File.generated(config, "api.md", content=api_page()))
    files.append(File.generated(config, "claims.md", content=claims_page(ROOT / "results")))
    folder = Path(tempfile.mkdtemp(prefix="tardigrad-site-"))
    for picture in pictures(folder):
        files.append(File.generated(config, f"pictures/{picture.name}", abs_src_path=str(picture)))
    for picture in sorted((ROOT / "results").rglob("*.png")):
        name = f"results/{picture.relative_to(ROOT / 'results').as_posix()}"
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links out of docs/ go to where those pages are here."""
    for target, source in ELSEWHERE.items():
        markdown = markdown.replace(f"](../{source}", f"]({target}")
    return markdown.replace("](../results/", "](results/")  # pictures


def on_post_page(output: str, **_: Any) -> str:
    """The theme would fetch this script from elsewhere, and pages would have no search offline."""
    return output.replace("https://unpkg.com/iframe-worker/shim", "javascripts/iframe_worker.js")


def on_post_template(output_content: str, **_: Any) -> str:
    return on_post_page(output_content)


def _moved(text: str, source: str) -> str:
    """A page of the project's root or of results/, as if it stood in docs/."""
    where = Path(source).parent
    for target, other in ELSEWHERE.items():
        text = text.replace(f"]({other}", f"]({target}")
    text = text.replace("](docs/", "](")
    if where != Path():
        text = re.sub(r"\]\((?!\w+:|#|\.\.)([^)]+)\)", rf"]({where.as_posix()}/\1)", text)
        text = text.replace("](../docs/", "](").replace("](../README.md", "](index.md")
    # Files of the code are not part of the site.
    return re.sub(r"\[([^\]]+)\]\((?:src|tests)/[^)]*\)", r"`\1`", text)
