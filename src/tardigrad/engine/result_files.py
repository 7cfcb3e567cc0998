"""What a run leaves in its folder, the same whatever made it: `Run.load` reads it again.

Metrics are written as they are made, all else at the end, the summary last: a folder without one
holds a run that has not ended.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tardigrad.core.checks import require
from tardigrad.engine.observer import EvaluationRecord, Observer, Started
from tardigrad.engine.run import Run
from tardigrad.rules import Rule
from tardigrad.scheduling import Schedule
from tardigrad.scheduling.analysis import delays_at
from tardigrad.tasks import ModuleTask, Task

SCHEDULE = "schedule.safetensors"
METRICS = "metrics.jsonl"
LOSSES = "losses.csv"
GRADIENTS = "gradients.csv"
PARAMS = "params.safetensors"
AVERAGE = "average.safetensors"
SUMMARY = "summary.json"
RECORD = "record.json"
"""Of a run on Ray."""


class MetricsFile(Observer):
    """`metrics.jsonl`: a line per evaluation, written as it is made; the first observer of a run in
    a folder. Lines that a resumed run makes again are taken away before it does."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS

    def started(self, start: Started) -> None:
        write_metrics(self._path, start.records)

    def evaluated(self, record: EvaluationRecord) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def save_result(folder: Path, run: Run, wall_s: float, **more: Any) -> None:
    """All that a finished run leaves; `more` goes into its summary."""
    run.schedule.save(folder / SCHEDULE)
    write_metrics(folder / METRICS, run.history.records)
    write_numbers(folder / LOSSES, {"loss": run.history.loss})
    measured = {n: getattr(run.history, n) for n in ("gap", "b_staleness")}
    measured = {name: values for name, values in measured.items() if values}
    if measured:
        delays = delays_at(run.schedule, 0).tolist()
        write_numbers(folder / GRADIENTS, {"delay": delays, **measured})
    save_params(folder, run)
    write_summary(folder, {**summarise(run, wall_s), **more})


def save_params(folder: Path, run: Run) -> None:
    """The end result by tensor names, as `load_state_dict` takes it; the running average of θ, if
    there is one, in a file of the same form beside it."""
    _save_tensors(folder / PARAMS, run.state_dict(), run.task)
    if run.average is not None:
        _save_tensors(folder / AVERAGE, run.state_dict(average=True), run.task)


def _save_tensors(path: Path, tensors: Mapping[str, Tensor], task: Task | None) -> None:
    """Tensors that share memory (tied weights) are written each on its own. The file notes which of
    them make up the flat vector, and which are running buffers, in order."""
    assert task is not None
    order = {"parameters": list(task.layout.names), "buffers": []}
    if isinstance(task, ModuleTask):
        order["buffers"] = list(task.buffer_names)
    partial = path.with_name(path.name + ".partial")
    save_file(
        {name: tensor.clone().contiguous() for name, tensor in tensors.items()},
        partial,
        metadata={"order": json.dumps(order)},
    )
    os.replace(partial, path)


def summarise(run: Run, wall_s: float) -> dict[str, Any]:
    """How a run ended, in figures: its last evaluation and what its schedule says."""
    last = run.history.records[-1] if run.history.records else {}
    source = run.provenance
    return {
        "status": "finished",
        **({} if run.ended is None else {"ended_by": run.ended.by, "why": run.ended.why}),
        **schedule_facts(run.schedule),
        "final": {name: value for name, value in last.items() if name != "wall_s"},
        "wall_s": wall_s,
        "torch": torch.__version__,
        **task_and_rule(run.task, run.rule),
        **({} if run.traffic is None else {"traffic": asdict(run.traffic)}),
        **({} if source is None else {"provenance": source._asdict()}),
        **({"on": "ray"} if source is not None and source.engine == "ray" else {}),
    }


def schedule_facts(schedule: Schedule) -> dict[str, Any]:
    delays, interrupted = schedule.delays, int(schedule.interrupted.sum())
    mean = float(delays.mean()) if len(delays) else 0.0
    return {
        "workers": schedule.workers,
        "updates": schedule.updates,
        "gradients": len(delays_at(schedule, 0)),
        "time_s": schedule.end_time,
        "clock": schedule.clock,
        "mean_delay": mean,
        "delay_counts": torch.bincount(torch.as_tensor(delays)).tolist(),
        "dropped": int(schedule.dropped.sum()),
        **({"interrupted": interrupted} if interrupted else {}),
    }


def task_and_rule(task: Task | None, rule: Rule | None) -> dict[str, str]:
    """What was learned, and by which rule, where no spec names them."""
    return {"task": task_label(task), "rule": rule_label(rule)}


def task_label(task: Task | None) -> str:
    """What was learned, in a word or two, where no spec names it."""
    if isinstance(task, ModuleTask):
        return type(task.module).__name__
    return "a task" if task is None else type(task).__name__


def rule_label(rule: Rule | None) -> str:
    """The parts of a rule, where no spec names it."""
    if rule is None:
        return "loss"
    parts = [type(part).__name__ for part in (rule.correction, rule.optimizer)]
    return " + ".join(part for part in parts if part != "Raw")


def write_metrics(path: Path, records: Iterable[EvaluationRecord]) -> None:
    write(path, "".join(json.dumps(record) + "\n" for record in records))


def write_summary(folder: Path, summary: Mapping[str, Any]) -> None:
    write(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")


def write_numbers(path: Path, columns: Mapping[str, Sequence[float]]) -> None:
    """Of one length, as CSV; numbers are read back to the bit."""
    rows = (",".join(map(repr, row)) for row in zip(*columns.values(), strict=True))
    write(path, "\n".join([",".join(columns), *rows]) + "\n")


def read_numbers(path: Path) -> dict[str, list[float]]:
    """What `write_numbers` wrote, by name; nothing where there is no file."""
    if not path.exists():
        return {}
    with named_if_damaged(path):
        header, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
        require(bool(header), "it has no header")
        names = header.split(",")
        rows = [[float(cell) for cell in line.split(",")] for line in lines]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return dict(zip(names, map(list, columns), strict=True))


@contextmanager
def named_if_damaged(path: Path) -> Iterator[None]:
    """What is wrong with a file that is read in the block is told with its name."""
    try:
        yield
    except ValueError as error:  # of JSON, TOML, UTF-8 and numbers alike
        raise ValueError(f"{path} is damaged: {error}") from None


def write(path: Path, text: str) -> None:
    """Replace a file in one step."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
