"""Interrupted gradients in timelines, traces, pages and summaries."""

from pathlib import Path

import pytest
import torch

import tardigrad as tg
from tardigrad.clusters import Constant
from tardigrad.engine.result_files import schedule_facts
from tardigrad.report.page import notices, run_shown
from tardigrad.report.page.timeline_data import timeline_data
from tardigrad.report.perfetto import trace_events
from tardigrad.report.timeline import OUTCOMES, draw_timeline, push_outcomes, spans
from tardigrad.scheduling.analysis import Summary


@pytest.fixture
def made() -> tg.Schedule:
    """Each update takes 3 s, and interrupts the second and the third worker."""
    return tg.schedule(tg.Rennala(4, stop=True), Constant(3, (1.0, 2.3, 7.15)), 10)


def test_every_interrupted_gradient_has_that_outcome(made: tg.Schedule) -> None:
    became = push_outcomes(made)
    assert (became == OUTCOMES.index("interrupted")).sum() == made.interrupted.sum() == 20
    shown = [span for span in spans(made, made.end_time) if span.what == "interrupted"]
    assert len(shown) == 20
    assert [span.to_s for span in shown] == made.end_s[[span.row for span in shown]].tolist()


def test_the_picture_has_a_key_for_it(made: tg.Schedule, tmp_path: Path) -> None:
    draw_timeline(made, tmp_path / "timeline.svg")
    assert "interrupted" in (tmp_path / "timeline.svg").read_text(encoding="utf-8")


def test_the_trace_tells_it_from_drops(made: tg.Schedule) -> None:
    events = trace_events(made)["traceEvents"]
    gradients = [e for e in events if e["ph"] == "X" and e["cat"] == "interrupted"]
    headers = [e for e in events if e["ph"] == "i"]
    assert len(gradients) == len(headers) == 20
    assert {e["name"] for e in headers} == {"interrupted"}
    assert {e["args"]["outcome"] for e in gradients} == {"interrupted"}


def test_summaries_count_it(made: tg.Schedule) -> None:
    assert schedule_facts(made)["interrupted"] == 20
    assert "interrupted" not in schedule_facts(tg.schedule(cluster=tg.Gamma(workers=2), updates=9))
    facts = Summary.of(made)
    assert facts.interrupted == facts.dropped == 20 / 60


def test_a_page_has_it_in_data_and_words() -> None:
    task = tg.FunctionTask(torch.ones(2), lambda view, worker, step: view)
    cluster = Constant(3, (1.0, 2.3, 7.15))
    policy = tg.Rennala(4, stop=True)
    run = tg.simulate(task, tg.rules.sgd(0.1), policy=policy, cluster=cluster, updates=10)
    assert timeline_data(run.schedule)["reasons"] == ["interrupted"]
    _, lateness, *_ = notices([run_shown(run)])
    assert "and 33.3% of all are interrupted" in lateness
    assert "dropped" not in lateness
