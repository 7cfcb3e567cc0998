"""Which spec may resume a run: its own, or one that differs in its length, stops or loggers."""

from dataclasses import replace
from typing import Any

from tardigrad.core.checks import require
from tardigrad.engine.result_files import SCHEDULE
from tardigrad.engine.resume import CHECKPOINT
from tardigrad.experiment.spec import Spec
from tardigrad.experiment.spec_data import Table, differences, with_new_keys
from tardigrad.recording.folder import RunFolder

FREE = ("updates", "stop", "log", "ray", "sync_log")
"""What may be decided anew: it changes nothing in what has been computed."""
SHARES = (("evaluate_every", 20), ("checkpoint_every", 10))


def check_simulated(folder: RunFolder) -> None:
    """Refuse to simulate on from a run on Ray, before anything of it is changed."""
    require(
        folder.record_place is None,
        f"{folder.path} holds a run on Ray: go on with it there (--on ray), or write elsewhere "
        "(--out DIR)",
    )


def check_on_ray(folder: RunFolder) -> None:
    """Refuse to go on on Ray from a simulated run."""
    simulated = any((folder.path / file).exists() for file in (CHECKPOINT, SCHEDULE))
    require(
        folder.record_place is not None or not simulated,
        f"{folder.path} holds a simulated run: go on with it there (without --on ray), or write "
        "elsewhere (--out DIR)",
    )


def continued(spec: Spec, folder: RunFolder) -> Spec:
    """The spec to go on with in the folder; refused where it is of another run.

    How often it is evaluated and saved stays, where the spec does not say it.
    """
    require(not folder.outcomes(), f"{folder.path} holds a comparison, which cannot be resumed")
    recorded = with_new_keys(folder.spec())
    before = recorded["updates"]
    require(
        spec.updates >= before,
        f"{folder.path} holds a run of {before} updates, which cannot be made one of "
        f"{spec.updates}: give more to extend it, or write elsewhere (--out DIR)",
    )
    for name, share in SHARES:
        # Not compared with what `before` gives: the run may have been extended already.
        if getattr(spec, name) == max(1, spec.updates // share):
            spec = replace(spec, **{name: recorded[name]})
    given = spec.data()
    different = [k for k in differences(recorded, given) if k.split(".")[0] not in FREE]
    require(
        not different,
        f"{folder.path} was started with another spec, so it cannot be resumed with this one: "
        f"{', '.join(_change(key, recorded, given) for key in different)}; "
        "use the values in its spec.toml, or write elsewhere (--out DIR)",
    )
    return spec


def _change(key: str, before: Table, now: Table) -> str:
    return f"{key} was {_value(before, key)}, and is {_value(now, key)}"


def _value(data: Any, key: str) -> str:
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
    return "left out" if data is None else repr(data)
