"""Tables and figures: the numbers in them, and that whatever a folder holds can be drawn."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tardigrad.recording.folder import RunFolder
from tardigrad.report import Comparison, Sweep, draw, figures, load_series, results_table
from tardigrad.report.series import Series, gathered, metric_of


def records(*losses: float, split: str = "validation") -> list[dict[str, Any]]:
    return [
        {"update": 10 * i, "time_s": 5.0 * i, f"{split}_loss": loss, f"{split}_accuracy": 1 - loss}
        for i, loss in enumerate(losses)
    ]


def summary(status: str = "finished", **facts: Any) -> dict[str, Any]:
    usual = {"updates": 20, "time_s": 10.0, "clockless": False, "mean_delay": 1.5, "dropped": 0}
    return {"status": status, "delay_counts": [1, 2, 1], **usual, **facts}


def text(series: list[Series], target: float | None = None) -> str:
    found = results_table(series, target)
    rows = [found.title, *map(str, found.columns), *(str(c) for row in found.rows for c in row)]
    return "\n".join(rows)


def test_mean_and_standard_deviation_over_seeds() -> None:
    one = Series("a", [records(1, 0.4, 0.1), records(1, 0.5, 0.3)], [summary(), summary()])
    out = text([one], target=0.45)
    assert "0.2 ± 0.1414" in out
    assert "80.00% ± 14.14%" in out
    assert "7.5 ± 3.536" in out  # reached at 5 s and at 10 s
    assert "1.50" in out


def test_diverged_runs_are_told_and_left_out_of_the_mean() -> None:
    some = Series("a", [records(1, 0.2), []], [summary(), summary("diverged")])
    all_of_them = Series("b", [[]], [summary("diverged")])
    out = text([some, all_of_them], target=0.1)
    assert "a (1 of 2 diverged)" in out
    assert "b (diverged)" in out
    assert "0.2" in out
    assert "–" in out  # neither reached the target


@pytest.mark.parametrize("wrong", [math.inf, math.nan], ids=str)
@pytest.mark.parametrize("kind", ["comparison", "sweep"])
def test_a_loss_that_ends_as_no_number_is_told_and_drawn(
    tmp_path: Path, wrong: float, kind: str
) -> None:
    """Its gradients may be finite all the same, so the run has not diverged."""
    ends = {"a": ((1, 0.4, 0.1), (1, 0.5, 0.3)), "b": ((1, 0.2, 0.4), (1, 0.5, wrong))}
    series = [
        Series(label, [records(*each) for each in losses], [summary(), summary()], [0, 1])
        for label, losses in ends.items()
    ]
    points: dict[str, dict[str, Any]] = {"a": {"rule.lr": 0.1}, "b": {"rule.lr": 50}}
    found = Sweep("t", series, points=points) if kind == "sweep" else Comparison("t", series)
    found.save(tmp_path)
    assert {path.suffix for path in tmp_path.iterdir()} >= {".csv", ".tex", ".png", ".pdf"}
    assert [row[1] for row in found.table().rows] == ["0.2 ± 0.1414", str(wrong)]
    assert "at the end: a, 0.2" in repr(found)
    (pair,) = found.differences(baseline="a")
    assert pair.seeds == (0,)
    assert pair.values == pytest.approx((0.3,))
    assert series[1].best("validation_loss") == [0.2, 0.5]


def test_dropped_gradients_have_a_column_where_there_are_any() -> None:
    assert "dropped" not in text([Series("a", [records(1, 0.5)], [summary()])])
    assert "dropped" in text([Series("a", [records(1, 0.5)], [summary(dropped=7)])])


def test_markup_in_a_label_is_not_markup() -> None:
    label = "adam:betas=[0.9,0.99]"
    assert label in text([Series(label, [records(1, 0.5)], [summary()])])


def test_clockless_time_is_counted_in_events() -> None:
    assert "time (events)" in text([Series("a", [records(1)], [summary(clockless=True)])])


def test_the_metric_is_what_all_runs_have() -> None:
    both = [Series("a", [records(1)], [summary()])]
    assert metric_of(both) == "validation_loss"
    assert metric_of([*both, Series("b", [records(1, split="test")], [summary()])]) is None
    assert metric_of([Series("b", [records(1, split="test")], [summary()])]) == "test_loss"


def test_outcomes_are_gathered_by_label() -> None:
    rows = [
        {"label": label, "seed": seed, "records": records(seed), "summary": summary()}
        for seed in (1, 2)
        for label in ("b", "a")
    ]
    series = gathered(rows)
    assert [one.label for one in series] == ["b", "a"]
    assert series[0].final("validation_loss") == [1, 2]
    assert series[0].delay_counts == [2, 4, 2]


def test_curves_show_mean_and_deviation_and_label_the_ends() -> None:
    one = Series("one", [records(1, 0.4, 0.1), records(1, 0.6, 0.3)], [summary(), summary()])
    gone = Series("gone", [[]], [summary("diverged")])
    figure = figures.loss_figure([one, gone], "validation_loss", "update", "updates", "a title")
    (axes,) = figure.axes
    assert np.asarray(axes.lines[0].get_xdata()).tolist() == [0, 10, 20]
    assert np.asarray(axes.lines[0].get_ydata()).tolist() == pytest.approx([1, 0.5, 0.2])
    (band,) = axes.collections
    edges = np.unique(np.asarray(band.get_paths()[0].vertices)[:, 1])
    spread = [float(np.std(pair, ddof=1)) for pair in ((0.4, 0.6), (0.1, 0.3))]
    expected = [1, 0.5 - spread[0], 0.5 + spread[0], 0.2 - spread[1], 0.2 + spread[1]]
    assert edges == pytest.approx(sorted(expected))
    said = figure.get_supxlabel()
    assert said == "line: mean over 2 seeds; band: ± 1 standard deviation"
    legend = axes.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["gone (diverged)", "one  0.2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("updates", "validation loss")
    assert axes.get_yscale() == "log"


def test_lines_of_very_different_length_get_a_logarithmic_axis() -> None:
    long = [r | {"time_s": 100 * r["time_s"]} for r in records(1, 0.5, 0.2)]
    series = [Series("s", [records(1, 0.5)], [summary()]), Series("l", [long], [summary()])]
    (axes,) = figures.loss_figure(series, "validation_loss", "time_s", "time", "").axes
    assert axes.get_xscale() == "log"
    assert all((np.asarray(line.get_xdata()) > 0).all() for line in axes.lines)


def test_shared_delays_are_drawn_once() -> None:
    series = [Series(label, [records(1)], [summary()]) for label in "abc"]
    series.append(Series("d", [records(1)], [summary(delay_counts=[4], mean_delay=0.0)]))
    (axes,) = figures.delays_figure(series, "").axes
    labels = [t.get_text() for t in axes.get_legend().get_texts()]  # type: ignore[union-attr]
    assert labels == ["3 rules, one schedule: mean 1.5", "d: mean 0.0"]


def test_figures_of_runs_that_measured_nothing_or_reached_zero(tmp_path: Path) -> None:
    bare = [Series("a", [[]], [summary()])]
    assert [path.name for path in draw(bare, tmp_path, "t")] == ["delays.png"]
    zero = [Series("a", [records(1, 0.0)], [summary()])]
    assert len(draw(zero, tmp_path, "t")) == 3
    results_table(bare)


def test_a_run_that_has_not_stopped_has_no_report(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", "updates = 1\n", None)
    with pytest.raises(ValueError, match="--resume"):
        load_series(folder.path)


def test_damaged_metrics_are_told(tmp_path: Path) -> None:
    spec = "updates = 1\ntask = 'quadratic'\nrule = {name = 'sgd'}\n"
    folder = RunFolder.create(tmp_path / "run", spec, None)
    folder.write_metrics([{"update": 1}])
    folder.write_summary(summary())
    assert load_series(folder.path)[0].runs == [[{"update": 1}]]
    with (folder.path / "metrics.jsonl").open("a") as file:
        file.write('{"update": ')  # a kill in the middle of a line
    assert load_series(folder.path)[0].runs == [[{"update": 1}]]
    (folder.path / "metrics.jsonl").write_text('{"update": \n{"update": 2}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl is damaged"):
        load_series(folder.path)


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        RunFolder.create(tmp_path / "run", "", object())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
