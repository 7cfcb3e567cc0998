"""A run from its folder, whatever made it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.core.layout import flatten
from tardigrad.engine import Ended, History, Run
from tardigrad.engine.result_files import AVERAGE, LOSSES, PARAMS, read_numbers
from tardigrad.engine.run import Provenance
from tardigrad.experiment.trusted_code import trusted_spec
from tardigrad.links import Codec, Identity
from tardigrad.recording.folder import SPEC, RunFolder
from tardigrad.rules import Rule
from tardigrad.scheduling import Copies, Traffic
from tardigrad.tasks import Task
from tardigrad.work import AnyWork, OneGradient


def load_run(
    folder: str | Path,
    task: Task | None = None,
    rule: Rule | None = None,
    work: AnyWork | None = None,
    codec: Codec | None = None,
    trust_code: bool = False,
) -> Run:
    """`Run.load`: the arguments are told there."""
    place = RunFolder.open(Path(folder))
    check_finished(place)
    summary, schedule = place.summary(), place.schedule()
    require(
        schedule.updates == summary["updates"],
        f"{place.path} holds a run that has been made longer and has not finished: "
        f"{how_to_go_on(place)}",
    )
    if place.has_spec:
        spec = trusted_spec(place.path, trust_code)
        task, rule = task or spec.make_task(), rule or spec.make_rule()
        work = work or spec.make_work()
        codec = codec or spec.make_link().codec
    params, buffers = _tensors(place.path / PARAMS)
    average = place.path / AVERAGE
    measured = place.gradients()
    losses = read_numbers(place.path / LOSSES).get("loss", [])
    known = {name: measured[name] for name in ("gap", "b_staleness") if name in measured}
    require(
        task is None or task.layout.size == params.numel(),
        f"{place.path} holds {params.numel():,} parameters, which is not what the task has: give "
        "the task that it was made with",
    )
    return Run(
        params,
        History(place.metrics(), losses, **known),
        schedule,
        buffers,
        _tensors(average)[0] if average.exists() else None,
        _traffic(summary.get("traffic")),
        Ended(summary.get("ended_by", "updates"), summary.get("why", ""), summary["updates"]),
        task,
        rule,
        _provenance(summary["provenance"]) if "provenance" in summary else None,
        work or OneGradient(),
        codec or Identity(),
    )


def _provenance(told: Mapping[str, Any]) -> Provenance:
    return Provenance(**{**told, "computers": tuple(told.get("computers", ()))})


def check_finished(place: RunFolder) -> None:
    """Refuse a folder without a finished run in it, and say how to come to one."""
    require(
        not place.outcomes(),
        f"{place.path} holds a comparison of runs, and no single one: see tardigrad report "
        f"{place.path}",
    )
    status = place.summary().get("status")
    what = {"stopped": "was stopped", "diverged": "diverged"}.get(
        status or "", "has not stopped yet, or was killed"
    )
    require(status == "finished", f"{place.path} holds a run that {what}: {how_to_go_on(place)}")


def how_to_go_on(place: RunFolder) -> str:
    """What to type to finish the run in a folder."""
    if not place.has_spec:
        return (
            "finish it by the call that made it, with "
            f"checkpoints=tg.Checkpoints({str(place.path)!r}, resume=True)"
        )
    on = " --on ray" if place.record_place is not None else ""
    return f"finish it (tardigrad run {place.path / SPEC}{on} --out {place.path} --resume)"


def _tensors(path: Path) -> tuple[Tensor, tuple[Tensor, ...]]:
    """The flat vector and the running buffers that a file by names holds."""
    try:
        with safe_open(path, framework="pt") as file:
            order = json.loads((file.metadata() or {}).get("order", "null"))
            require(
                order is not None,
                f"{path} was written by tardigrad 0.1, which did not note the order of its "
                "tensors: read it by name, with safetensors.torch.load_file",
            )
            named = {name: file.get_tensor(name) for names in order.values() for name in names}
    except (SafetensorError, FileNotFoundError) as error:
        raise ValueError(f"{path} is not a whole file of parameters: {error}") from None
    flat = flatten({name: named[name] for name in order["parameters"]})
    return flat, tuple(torch.clone(named[name]) for name in order["buffers"])


def _traffic(told: dict[str, Any] | None) -> Traffic | None:
    return None if told is None else Traffic(**{way: Copies(**told[way]) for way in told})
