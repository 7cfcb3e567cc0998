"""Executing a run again, from its folder or as it is at hand, and comparing the bits."""

from collections.abc import Mapping
from pathlib import Path

from tardigrad.core.checks import require
from tardigrad.core.used_code import changes, used_code
from tardigrad.engine import Run
from tardigrad.engine.resume import saved_facts
from tardigrad.experiment.loading import how_to_go_on, load_run
from tardigrad.experiment.trusted_code import trusted_spec
from tardigrad.links import Codec, that_codes
from tardigrad.recording.folder import SPEC, RunFolder
from tardigrad.recording.record import read_record
from tardigrad.recording.replay import Replayed, replay_recorded, replay_run
from tardigrad.rules import Rule
from tardigrad.tasks import Task
from tardigrad.work import AnyWork


def replay(
    run: Run | str | Path,
    until: int | None = None,
    checkpoint: str | Path | None = None,
    force: bool = False,
    task: Task | None = None,
    rule: Rule | None = None,
    work: AnyWork | None = None,
    codec: Codec | None = None,
    trust_code: bool = False,
) -> Replayed:
    """Execute again what a run executed, simulated or real, and compare the parameters bit for bit.

    Args:
        run: a run, or the folder of one.
        until: stop after this update; what was recorded by then is compared.
        checkpoint: where to save everything known at the end of the replay.
        force: replay even if what the bits depend on is not the same here.
        task, rule, work, codec: those it was made with, where the folder has no spec that tells.
        trust_code: execute code that the folder's spec names, even if it was never run from this
            account.
    """
    if isinstance(run, Run):
        return replay_run(run, until, checkpoint, force)
    folder = RunFolder.open(Path(run))
    require(
        folder.has_spec or (task is not None and rule is not None),
        f"{run} holds a run that was made in Python, without a {SPEC}: give the task and the rule "
        f"it was made with, tg.replay({str(run)!r}, task=task, rule=rule)",
    )
    if folder.record_place is None:
        loaded = load_run(folder.path, task, rule, work, codec, trust_code)
        if not force:
            _check_code(folder, loaded, trust_code)
        return replay_run(loaded, until, checkpoint, force)
    record = read_record(folder.record_place)
    require(record["finished"], f"the run in {run} has not finished: {how_to_go_on(folder)}")
    if folder.has_spec:
        spec = trusted_spec(folder.path, trust_code)
        task, rule = task or spec.make_task(), rule or spec.make_rule()
        work = work or spec.make_work()
        codec = codec or spec.make_link().codec
    assert task is not None
    assert rule is not None
    return replay_recorded(
        folder.schedule(), task, rule, record, until, checkpoint, force, work, codec
    )


def _check_code(folder: RunFolder, loaded: Run, trust_code: bool) -> None:
    """Refuse where the code that computed the run is another one now."""
    before = saved_facts(folder.path).get("code")
    if before is None:
        return
    now = used_code(loaded.task, loaded.rule, loaded.work, *that_codes(loaded.codec))
    found = changes(_computing(before, now, folder, trust_code), now)
    require(
        not found,
        f"since the run in {folder.path} was made, {', '.join(found)}: the same bits cannot be "
        "expected. Put the old code back, or replay with --force (force=True) to see",
    )


def _computing(
    before: Mapping[str, str], now: Mapping[str, str], folder: RunFolder, trust_code: bool
) -> dict[str, str]:
    """What was recorded, without the code that decided on the way (of a policy, a link): a replay
    does not ask it again. A run made in Python does not say which that was."""
    if before.keys() <= now.keys():
        return dict(before)
    decided = before
    if folder.has_spec:
        spec = trusted_spec(folder.path, trust_code)
        decided = used_code(spec.make_policy(), spec.make_cluster(), spec.make_link())
    return {name: digest for name, digest in before.items() if name in now or name not in decided}
