"""Small runs for pages, without a model: control and some numbers are enough."""

from typing import Any

import numpy as np

from tardigrad.clusters import Absence, Exponential, Network
from tardigrad.engine.result_files import schedule_facts
from tardigrad.policies import Async, Backup, Sync
from tardigrad.report.page import PageRun
from tardigrad.report.series import Series
from tardigrad.scheduling import Schedule, schedule, traffic

BAD = "</script><img src=x onerror='window.hurt=1'><script>window.hurt=1</script>&amp;"
"""A name that would be code if it were not escaped."""


def page_run(made: Schedule, label: str = "sgd", **more: Any) -> PageRun:
    """With an evaluation before the first update, and some on the way."""
    records = []
    for update in range(0, made.updates + 1, max(10, made.updates // 20)):
        done = int(np.searchsorted(np.cumsum(made.group_shard == 0), update)) + 1 if update else 0
        at_s = float(made.group_time_s[done - 1]) if done else 0.0
        crossed = traffic(made, [40] * made.shards, done).record()
        loss = 2.0 / (1 + update)
        scores = {"validation_loss": loss, "validation_accuracy": 1 - loss / 3}
        records.append({"update": update, "time_s": at_s, **crossed, **scores})
    series = Series(label, [records], [{"status": "finished", **schedule_facts(made)}])
    losses = np.linspace(2.0, 1.0, int((made.group_shard == 0).sum())).tolist()
    return PageRun(series, f"a task, {made.workers} workers", made, losses, **more)


def late(updates: int = 300, workers: int = 4) -> Schedule:
    return schedule(Async(), Exponential(workers=workers), updates=updates)


def together(updates: int = 70, workers: int = 4) -> Schedule:
    return schedule(Sync(), Exponential(workers=workers), updates=updates)


def disturbed() -> Schedule:
    """Two shards, a network, backup workers (so that gradients are dropped), and absences."""
    absences = (Absence(1, 3.3, 6.1), Absence(2, 7.7))
    network = Network(latency_s=0.1, jitter=0.5)
    cluster = Exponential(workers=6, absences=absences, network=network)
    return schedule(Backup(backups=2), cluster, updates=60, shards=2)
