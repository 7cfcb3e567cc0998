"""What a folder's figures are called."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tardigrad.core.own_code import title_name
from tardigrad.engine.result_files import SCHEDULE
from tardigrad.recording.folder import RunFolder


def title_of(path: Path) -> str:
    """Task, workers and what gave them their times, policy."""
    folder = RunFolder.open(path)
    summary = folder.summary()
    if not folder.has_spec:
        about = folder.schedule().about if (path / SCHEDULE).exists() else {}
        names = (str(about.get(part, {}).get("name", "")) for part in ("cluster", "policy"))
        return made_title(summary["task"], summary["workers"], *names)
    return title_from(folder.spec(), summary or folder.outcomes()[0]["summary"])


def title_from(spec: Mapping[str, Any], summary: Mapping[str, Any]) -> str:
    cluster = spec["cluster"]
    # A trace says in its file how many there are.
    workers = cluster.get("workers") or summary["workers"]
    times, policy = (spec[part]["name"].rpartition(":")[2] for part in ("cluster", "policy"))
    if summary.get("on") == "ray":
        times = f"Ray, keeping {times} times" if summary.get("imposed") else "Ray"
    return f"{title_name(spec['task']['name'])}, {workers} workers ({times}), {policy}"


def made_title(task: str, workers: int, cluster: str, policy: str) -> str:
    times = f" ({'Ray' if cluster == 'ray' else cluster})" if cluster else ""
    return ", ".join(filter(None, [task, f"{workers} workers{times}", policy]))
