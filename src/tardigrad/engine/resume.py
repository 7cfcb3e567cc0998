"""Saving an execution and going on with it, by the same engine and with the same code."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.used_code import changes
from tardigrad.core.version import __version__
from tardigrad.engine.checkpoint import load_checkpoint, load_facts, save_checkpoint
from tardigrad.engine.execution import Execution
from tardigrad.engine.run import Say

CHECKPOINT = "checkpoint.safetensors"
WORK = "workers_do"
"""Where a checkpoint says the work; under "work" it has what workers keep."""


def save(execution: Execution, path: Path, code: dict[str, str], wall_s: float) -> None:
    """`code` is what the run began with (`used_code`), `wall_s` what it has taken so far."""
    facts: dict[str, Any] = {"engine": execution.name, "wall_s": wall_s}
    facts |= {"tardigrad": __version__, "code": code, "rule": repr(execution.rule)}
    facts |= {WORK: repr(execution.job.work), "computers": execution.computers}
    save_checkpoint(path, execution.tensors(), facts | execution.facts())


def restore(
    execution: Execution, path: Path, code: dict[str, str], say: Say | None = None
) -> float:
    """Go on from a checkpoint; tells the seconds that had been spent. Another run's is refused;
    where the rule's or the task's code has changed since, `say` is told, because then the run's end
    is of neither code."""
    tensors, facts = load_checkpoint(path)
    made_by = facts.get("engine", "exact")
    require(
        made_by == execution.name,
        f"the checkpoint was made by the {made_by} engine, which differs from the "
        f"{execution.name} one in the last bits: resume with engine = {made_by!r}",
    )
    if execution.extends(facts) and not execution.has_what_follows(tensors, facts):
        _tell(
            f"{path} is of a run that ended after update {saved_version(facts):,}, without what "
            "its gradients on their way were computed at: it is executed again from the start",
            say,
        )
        return 0.0
    try:
        execution.restore(tensors, facts)
    except (ValueError, KeyError) as error:
        raise ValueError(_refusal(error, facts)) from error
    _note_computers(execution, facts.get("computers", ()), say)
    found = _changed_code(facts, code)
    if found:
        _tell(
            f"{found}; what follows is computed by the code that is here now: for a run of one "
            "code put the old one back, or start in a new folder",
            say,
        )
    for what, before, now in (
        ("rule", _rule_then(facts, execution), repr(execution.rule)),
        ("work", facts.get(WORK), repr(execution.job.work)),
    ):
        if before not in (None, now):
            _tell(f"the {what} was {before} at the checkpoint, and is {now} from here on", say)
    return float(facts.get("wall_s", 0.0))  # 0.1 did not note it


def _note_computers(execution: Execution, before: Sequence[str], say: Say | None) -> None:
    (here,) = execution.computers
    execution.computed_before = before
    if before and here not in before:
        _tell(
            f"the run was computed on {' and on '.join(before)}, and goes on on {here}: they may "
            "round differently, so its bits are those of a run on neither",
            say,
        )


def saved_version(facts: dict[str, Any]) -> int:
    """How many updates a checkpoint holds."""
    return min((int(shard["version"]) for shard in facts.get("shards", ())), default=0)


def _tell(what: str, say: Say | None) -> None:
    warnings.warn(what, stacklevel=4) if say is None else say(what)


def saved_facts(folder: str | Path) -> dict[str, Any]:
    """Of the folder's checkpoint; nothing where there is none yet."""
    checkpoint = Path(folder) / CHECKPOINT
    return load_facts(checkpoint) if checkpoint.exists() else {}


def saved_chunk(folder: str | Path) -> int | None:
    """The chunk that the folder's checkpoint was made with, where it has one."""
    return saved_facts(folder).get("chunk")


def saved_updates(folder: str | Path) -> int:
    """How many updates the folder's checkpoint holds; 0 where there is none yet."""
    return saved_version(saved_facts(folder))


def _refusal(error: ValueError | KeyError, facts: dict[str, Any]) -> str:
    """Why it cannot go on; where another version may be the reason, that too."""
    told = str(error)
    if isinstance(error, KeyError):
        told = (
            f"the checkpoint does not hold {told}: start in a new folder, or resume with the "
            "version of tardigrad, the rule and the task that it was made with"
        )
    made_by, here = facts.get("tardigrad", "0.1"), __version__
    if made_by != here:
        told += f" (it was made by tardigrad {made_by}, and this is {here})"
    return told


def _rule_then(facts: dict[str, Any], execution: Execution) -> str | None:
    """As the checkpoint has it. What workers clip at stood in the rule before it was the work's."""
    then: str | None = facts.get("rule")
    if then is None or WORK in facts:
        return then
    clip_norm = getattr(execution.job.work, "clip_norm", None)
    return then.replace(f"clip_norm={clip_norm}", f"clip_norm={execution.rule.clip_norm}")


def _changed_code(facts: dict[str, Any], code: dict[str, str]) -> str:
    """A phrase; empty where nothing has changed."""
    if "code" not in facts:
        return "the checkpoint was made by tardigrad 0.1, which did not note the code it used"
    found = changes(facts["code"], code)
    return f"since the checkpoint was made, {', '.join(found)}" if found else ""
