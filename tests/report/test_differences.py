"""Paired differences: the numbers against a reference, and what is said of them."""

import math
from typing import Any

import numpy as np
import pytest

from tardigrad.report import Comparison
from tardigrad.report.intervals import mean_interval, t_quantile

TABLE = {
    1: 12.70620473617471,
    2: 4.302652729749464,
    3: 3.182446305283710,
    4: 2.776445105197793,
    5: 2.570581835636314,
    9: 2.262157162798205,
    10: 2.228138851986273,
    29: 2.045229642132703,
    30: 2.042272456301238,
    100: 1.983971518523552,
}
"""Two-sided 95% quantiles as printed in tables of Student's t."""


@pytest.mark.parametrize("freedom", TABLE)
def test_quantiles_are_those_of_the_tables(freedom: int) -> None:
    assert t_quantile(0.95, freedom) == pytest.approx(TABLE[freedom], rel=1e-12)


@pytest.mark.parametrize("freedom", [1, 2, 7, 12])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_the_density_between_the_quantiles_is_the_level(freedom: int, level: float) -> None:
    """Integrated numerically from the density itself."""
    end = t_quantile(level, freedom)
    x = np.linspace(-end, end, 400_001)
    scale = math.gamma((freedom + 1) / 2) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2))
    density = scale * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    inside = float(((density[1:] + density[:-1]) / 2 * np.diff(x)).sum())
    assert inside == pytest.approx(level, abs=1e-7)


def test_an_interval_holds_the_mean_as_often_as_it_says() -> None:
    draws = np.random.default_rng(0).normal(3.0, 2.0, size=(4000, 4))
    found = [mean_interval(row.tolist()) for row in draws]
    held = sum(one.low <= 3.0 <= one.high for one in found if one.low and one.high) / len(found)
    assert held == pytest.approx(0.95, abs=4 * math.sqrt(0.95 * 0.05 / 4000))


def outcome(label: str, seed: int, loss: float | None, **facts: Any) -> dict[str, Any]:
    records = [{"update": 0, "time_s": 0.0, "validation_loss": 1.0, "validation_accuracy": 0.5}]
    if loss is not None:
        end = {"validation_loss": loss, "validation_accuracy": 1 - loss}
        records.append({"update": 10, "time_s": 5.0, **end})
    summary = {
        "status": "finished" if loss is not None else "diverged",
        "updates": 10,
        "gradients": 10,
        "time_s": 5.0,
        "clock": "virtual",
        "mean_delay": 1.0,
        "dropped": 0,
        "delay_counts": [5, 5],
        "wall_s": 0.1,
        "meets": f"schedule {seed}-task {seed}",
        **({} if loss is not None else {"at": 7}),
        **facts,
    }
    return {"label": label, "seed": seed, "records": records if loss else [], "summary": summary}


BASE = {0: 0.50, 1: 0.70, 2: 0.30, 3: 0.40}
BETTER = {0: 0.45, 1: 0.66, 2: 0.27, 3: 0.37}


def compared(**rules: dict[int, float | None]) -> Comparison:
    found = [outcome(label, s, loss) for label, each in rules.items() for s, loss in each.items()]
    return Comparison.of("title", found)


def test_differences_are_paired_by_seed_and_their_interval_is_students() -> None:
    shuffled = dict(reversed(BETTER.items()))
    (one,) = compared(base=dict(BASE), better=dict(shuffled)).differences()
    values = np.array([BETTER[seed] - BASE[seed] for seed in one.seeds])
    assert sorted(one.seeds) == [0, 1, 2, 3]
    assert one.values == pytest.approx(values)
    half = TABLE[3] * values.std(ddof=1) / 2
    assert (one.label, one.baseline, one.metric) == ("better", "base", "validation_loss")
    assert one.mean == pytest.approx(values.mean())
    assert (one.low, one.high) == pytest.approx((values.mean() - half, values.mean() + half))
    assert one.high is not None
    assert one.high < 0  # though the two spread over each other by far


def test_the_table_says_against_what_of_how_many_seeds_and_by_which_interval() -> None:
    found = compared(base=dict(BASE), better=dict(BETTER))
    table = found.differences_table()
    assert table is not None
    assert table.title == (
        "difference from base, paired by seed: same schedule, batches and initial weights"
    )
    assert table.notes == ("95% intervals of the mean difference by Student's t over 4 seeds",)
    (row,) = table.data()["rows"]
    assert row["rule"] == "better"
    assert (row["loss"], row["accuracy"]) == ("−0.0375", "+3.75 pp")
    assert row["loss, 95% interval"] == "[−0.0527, −0.0223]"
    assert row["seeds"] == "4"
    assert "mean ± standard deviation over 4 seeds" in found.table().title


def test_a_seed_that_diverged_has_no_pair() -> None:
    worse: dict[int, float | None] = {0: 0.6, 1: None, 2: 0.5, 3: None}
    found = compared(base=dict(BASE), worse=worse)
    (one,) = found.differences()
    assert one.values == pytest.approx((0.1, 0.2))
    table = found.differences_table()
    assert table is not None
    assert table.rows[0][-1] == "2 of 4"
    gone: dict[int, float | None] = dict.fromkeys(range(4))
    (none,) = compared(base=dict(BASE), gone=gone).differences()
    assert (none.values, none.mean, none.low) == ((), None, None)


def test_one_seed_claims_no_interval_and_says_so() -> None:
    found = compared(base={0: 0.5}, better={0: 0.4})
    (one,) = found.differences()
    assert one.mean == pytest.approx(-0.1)
    assert (one.low, one.high) == (None, None)
    table = found.differences_table()
    assert table is not None
    assert table.columns == ("rule", "loss", "accuracy")
    assert table.notes == ("one seed: no interval, which takes several (5, say)",)
    assert found.figure().get_supxlabel() == "one seed: difference without an interval"


def test_another_baseline_turns_the_sign() -> None:
    found = compared(base=dict(BASE), better=dict(BETTER))
    (one,) = found.differences(baseline="better")
    (other,) = found.differences()
    assert one.mean == pytest.approx(-(other.mean or 0))
    with pytest.raises(ValueError, match=r"baseline 'beter' is not .* did you mean 'better'\?"):
        found.differences(baseline="beter")
    with pytest.raises(ValueError, match="there is no test_loss of all runs"):
        found.differences("test_loss")


def test_what_was_not_the_same_for_all_is_not_called_so() -> None:
    found = [outcome(label, 0, 0.5) for label in "ab"]
    found[1]["summary"]["meets"] = "another-task 0"
    table = Comparison.of("title", found).differences_table()
    assert table is not None
    assert "not all met the same schedule" in table.title
    del found[0]["summary"]["meets"], found[1]["summary"]["meets"]  # as folders of before
    assert not Comparison.of("title", found).met_the_same


def test_one_task_for_all_seeds_is_told() -> None:
    found = [outcome("a", seed, 0.5, meets=f"schedule {seed}-task") for seed in (0, 1)]
    assert "one task for all seeds" in Comparison.of("title", found).table().notes[0]
    assert compared(base=dict(BASE)).table().notes == ()


def test_rules_stand_in_the_order_asked_for_whoever_ended_first() -> None:
    found = [outcome(label, 0, 0.5) | {"place": place} for place, label in ((1, "b"), (0, "a"))]
    assert [one.label for one in Comparison.of("title", found).series] == ["a", "b"]


def test_the_figure_draws_means_and_intervals() -> None:
    found = compared(base=dict(BASE), better=dict(BETTER))
    figure = found.figure()
    (one,) = found.differences()
    curves, ends = figure.axes
    assert curves.get_xlabel() == "updates (all of them: 5 s of virtual time)"
    assert ends.get_xlabel() == "final validation loss: difference from base"
    drawn = [np.asarray(line.get_xdata()).tolist() for line in ends.lines]
    assert [0.0, 0.0] in drawn  # the baseline
    assert [one.low, one.high] in drawn
    assert [one.mean] in drawn
    assert figure.get_supxlabel() == (
        "line: mean over 4 seeds; band: ± 1 standard deviation; dot: mean of 4 paired differences "
        "(ticks), bar: its 95% interval (Student's t)"
    )


def test_a_rule_that_ran_away_flattens_nothing() -> None:
    away: dict[int, float | None] = dict.fromkeys(range(4), 1e20)
    figure = compared(base=dict(BASE), better=dict(BETTER), away=away).figure()
    curves, ends = figure.axes
    assert curves.get_ylim()[1] == pytest.approx(10)
    assert ends.get_xlim()[1] < 1
    assert any("beyond the frame: +1e+20" in text.get_text() for text in ends.texts)
