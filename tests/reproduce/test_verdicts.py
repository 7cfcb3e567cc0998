"""Verdicts follow from cells: a claim holds where it should, and not where one cell says no."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tardigrad.reproduce import CLAIMS, STUDIES, Verdict
from tardigrad.reproduce.kept_cells import FoundCells, KeptCell
from tardigrad.reproduce.study import Study

JUDGES = {claim.id: claim for claim in CLAIMS if claim.judge is not None}

Figures = Mapping[str, Any]


def cell(name: str, figures: Figures) -> KeptCell:
    """A figure "diverged" makes it so; "costs" are a run's evaluations."""
    rest = {n: v for n, v in figures.items() if n not in ("costs", "diverged", "records")}
    records = figures.get("records") or [{"validation_loss": c} for c in figures.get("costs", ())]
    status = "diverged" if figures.get("diverged") else "finished"
    return KeptCell(name, status, {}, rest, records)


def found(
    study: Study,
    quick: bool,
    figures: Callable[[str], Figures | None],
    changed: Mapping[str, Figures],
) -> FoundCells:
    """Every planned cell with its figures; None is an empty one."""
    names = [one.name for one in study.cells(quick)]
    made = {name: changed.get(name, figures(name)) for name in names}
    there = {name: cell(name, one) for name, one in made.items() if one is not None}
    return FoundCells(study.name, quick, names, there)


def verdict(
    claim: str,
    figures: Callable[[str], Figures | None],
    changed: Mapping[str, Figures] | None = None,
    quick: bool = False,
) -> Verdict:
    asked = JUDGES[claim]
    assert asked.study is not None
    assert asked.judge is not None
    return asked.judge(found(STUDIES[asked.study], quick, figures, changed or {}))


def found_names(claim: str) -> list[str]:
    return [one.name for one in STUDIES[JUDGES[claim].study or ""].cells(False)]


def accuracies(**by_part: float) -> Callable[[str], Figures]:
    """By a part of the cell's name; the first that is in it counts."""

    def of(name: str) -> Figures:
        parts = name.split("/")
        value = next((v for p, v in by_part.items() if p.replace("_", "-") in parts), 0.5)
        return {"test_accuracy": value, "test_accuracy_ema": value, "time_s": 1.0}

    return of


@pytest.mark.parametrize("claim", JUDGES)
def test_nothing_is_said_of_empty_cells(claim: str) -> None:
    for quick in (False, True) if STUDIES[JUDGES[claim].study or ""].quick() else (False,):
        assert verdict(claim, lambda name: None, quick=quick).kind == "not measured yet"


SEVEN = {"SA": 0.85, "GA": 0.88, "DANA_GA": 0.91, "DANA_SA": 0.87, "ASGD": 0.88, "DANA": 0.3}


def test_table_4() -> None:
    right = accuracies(**SEVEN, NAG_ASGD=0.1)
    assert verdict("G2", right).kind == "holds"
    assert "GA 88.00" in verdict("G2", right).ours
    said = verdict("G2", accuracies(**{**SEVEN, "GA": 0.84}, NAG_ASGD=0.1))
    assert (said.kind, said.why.split(";")[0]) == (
        "does not hold",
        "GA does not end above SA at N=32",
    )
    said = verdict("G2", right, {"N=48/ASGD/seed=0": {"test_accuracy": 0.95}})
    assert said.why == "ASGD ends highest at N=48"


def test_table_4_is_judged_by_whole_numbers_of_workers() -> None:
    right = accuracies(**SEVEN, NAG_ASGD=0.1)
    some = verdict("G2", lambda name: right(name) if name.startswith("N=32/") else None)
    assert some.kind == "holds"
    assert "N=48" not in some.ours
    none = verdict("G2", lambda name: None if "/DANA/" in name else right(name))
    assert none.kind == "not measured yet"


def test_a_diverged_run_counts_as_chance() -> None:
    right = accuracies(**SEVEN)
    lost = {"diverged": True}
    changed = {f"N=32/GA/seed={seed}": lost for seed in range(3)}
    assert verdict("G2", right, changed).kind == "does not hold"
    assert verdict("G2", right, {"N=32/NAG-ASGD/seed=0": lost}).kind == "holds"


def test_dc_asgd_beside_sequential() -> None:
    ends = {"SGD": 0.915, "ASGD": 0.905, "SSGD": 0.9, "DC_ASGD_c": 0.912, "DC_ASGD_a": 0.914}
    assert verdict("D1", accuracies(**ends)).kind == "holds with a choice"
    said = verdict("D1", accuracies(**{**ends, "ASGD": 0.913}))
    assert said.why.startswith("DC-ASGD-c does not end above ASGD at M=4")
    assert said.why.count("at M=4 ASGD itself ends 0.20 points below SGD, so there is little") == 1
    said = verdict("D1", accuracies(**{**ends, "SGD": 0.95}))
    assert said.kind == "does not hold"
    assert "3.80 points below SGD" in said.why
    said = verdict("D1", accuracies(**{**ends, "ASGD": 0.916}))
    assert "at M=4 ASGD itself ends 0.10 points above SGD, so there is nothing" in said.why


def test_dc_asgd_is_judged_on_the_seeds_that_both_have() -> None:
    """Seed 0 is the easier one: who lacks the others is neither better nor worse for it."""
    ends = {"SGD": 0.915, "ASGD": 0.905, "SSGD": 0.9, "DC_ASGD_c": 0.912, "DC_ASGD_a": 0.914}

    def of(name: str) -> Figures | None:
        if "M=8/ASGD" in name and not name.endswith("seed=0"):
            return None
        of_seed = accuracies(**{rule: end - 0.02 * int(name[-1]) for rule, end in ends.items()})
        return of_seed(name)

    said = verdict("D1", of)
    assert said.kind == "holds with a choice"
    assert "ASGD 90.50 (seeds: 1)" in said.ours


def costs(**by_part: float) -> Callable[[str], Figures]:
    def of(name: str) -> Figures:
        rates = {"FASGD": 0.2, "SASGD": 0.4} | by_part
        return {"costs": [9.0] * 90 + [rates[name.split("/")[3]]] * 10}

    return of


def test_figure_1_at_the_papers_rates_and_at_the_best() -> None:
    assert verdict("F1", costs()).kind == "holds"
    some = verdict("F1", lambda name: costs()(name) if "mu=4," in name else None)
    assert some.kind == "not measured yet"
    one = verdict("F1", lambda name: costs(FASGD=0.5)(name) if "paper/unit/mu=4," in name else None)
    assert one.kind == "does not hold"
    lower = costs(FASGD=0.5)
    paper = verdict("F1", lambda name: lower(name) if name.startswith("paper") else None)
    assert (paper.kind, "not scanned yet" in paper.why) == ("does not hold", True)
    best = {
        f"scan/{pixels}/{one.name.split('/')[2]}/FASGD/eps=0.01,lr=0.01/seed={seed}": {
            "costs": [0.1] * 100
        }
        for pixels in ("unit", "standard")
        for one in STUDIES["fasgd-fig1"].cells(False)[:8]
        for seed in range(3)
    }
    said = verdict("F1", lower, best)
    assert said.kind == "holds with a choice"
    few = verdict("F1", lambda name: None if "/lr=0.32/" in name else lower(name), best)
    assert few.kind == "does not hold"
    assert "(25 of 26 points)" in few.ours
    assert few.why.endswith("; best rates and ε are not scanned yet everywhere")
    assert verdict("F1", lower).why.count("nor with each at its best rate") == 1


def test_figure_2_must_grow() -> None:
    ratio = {"lambda=250": 2.0, "lambda=500": 2.5, "lambda=1000": 3.0, "lambda=10000": 4.0}

    def of(name: str) -> Figures:
        much = ratio[name.split("/")[2].split(",")[1]]
        return {"costs": [0.1 * much if name.split("/")[3] == "SASGD" else 0.1] * 100}

    def paper(name: str) -> Figures | None:
        return of(name) if name.startswith("paper") else None

    assert verdict("F2", paper).kind == "holds"
    ratio["lambda=1000"] = 2.2
    said = verdict("F2", paper)
    assert said.kind == "does not hold"
    assert said.why.startswith("FASGD ends lower, but the margin does not grow at every step")


def linked(cost: Mapping[str, float], bend: float = 5.0) -> Callable[[str], Figures]:
    """Both ways: at first `bend` times the share that crosses later."""

    def of(name: str) -> Figures:
        stem = name.rpartition("/")[0]
        way, share = stem.partition("/")[0].removesuffix("-average"), 0.1
        record = {"validation_loss": cost.get(stem, 0.1)}
        rows = []
        for at in range(0, 101, 10):
            row = dict(record)
            for one in ("push", "pull"):
                crossed = 1.0 if one != way else (share * bend if at == 10 else share)
                row |= {f"{one}_bytes": crossed * at, f"{one}_bytes_potential": at}
            rows.append(row)
        return {**rows[-1], "records": rows, "gradients": 100}

    return of


def test_what_links_leave_out() -> None:
    harmed = {"push/c=0.02": 0.5, "push/c=0.12": 0.9}
    pulls = verdict("F3", linked(harmed))
    assert pulls.kind == "holds with a choice"
    assert "pulls ÷ 10.0: cost +0%" in pulls.ours
    assert "÷ 1.82, not 5" in pulls.ours
    assert verdict("F3", linked({"pull/c=0.12": 0.2})).kind == "does not hold"
    assert verdict("F4", linked(harmed)).kind == "holds with a choice"
    worse = {f"push-average/c={c}": 0.5 for c in ("0.02", "0.12")}
    assert verdict("F4", linked({**harmed, **worse})).kind == "holds"
    assert verdict("F4", linked({"push/c=0.12": 0.9})).kind == "does not hold"
    assert verdict("F5", linked(harmed)).kind == "holds with a choice"
    assert verdict("F5", linked(harmed, bend=1.0)).kind == "does not hold"


def test_variants_of_the_gap() -> None:
    def of(low: float) -> Callable[[str], Figures]:
        def one(name: str) -> Figures:
            mean = {"parameter-wise": low, "layer-wise": 0.85, "global": 0.84}[name.split("/")[1]]
            return {"test_accuracy": mean + 0.01 * int(name[-1])}

        return one

    assert verdict("G1", of(0.86)).kind == "holds"
    assert verdict("G1", of(0.845)).kind == "holds with a choice"
    assert verdict("G1", of(0.8)).kind == "does not hold"


def test_tuned_asgd() -> None:
    def of(best: float) -> Callable[[str], Figures]:
        def one(name: str) -> Figures:
            if name.startswith("ASGD/lr=0.03,momentum=0.5"):
                return {"test_accuracy": best}
            return accuracies(GA=0.88, DANA_GA=0.91)(name)

        return one

    assert verdict("G5", of(0.884)).kind == "holds"
    said = verdict("G5", of(0.9))
    assert (said.kind, said.why) == ("does not hold", "GA end lower")
    assert "(lr=0.03,momentum=0.5)" in said.ours


def test_unequal_machines() -> None:
    def of(equal: float) -> Callable[[str], Figures]:
        def one(name: str) -> Figures:
            return (
                {"test_accuracy": equal} if name.startswith("equal/") else accuracies(**SEVEN)(name)
            )

        return one

    assert verdict("G10", of(0.8)).kind == "holds"
    assert "GA ends lower than with equal machines" in verdict("G10", of(0.89)).why


def test_gap_and_delay() -> None:
    def of(gap: Mapping[str, float]) -> Callable[[str], Figures]:
        def one(name: str) -> Figures:
            return {"gap": [gap[name.split("/")[1]]] * 20, "staleness": [8.0] * 20}

        return one

    assert verdict("G8", of({"GA": 4, "DANA-GA": 2})).kind == "holds"
    assert "not the smaller" in verdict("G8", of({"GA": 4, "DANA-GA": 5})).why
    assert "GA's gap is not always below" in verdict("G8", of({"GA": 9, "DANA-GA": 2})).why


def test_tails_times_and_adam() -> None:
    shares = {"equal": 0.0094, "different": 0.2785}
    assert verdict("G11", lambda name: {"share": shares[name]}).kind == "holds"
    said = verdict("G11", lambda name: {"share": 2 * shares[name]})
    assert said.why == "equal and different differ by over a tenth"
    close = {"ASGD": 10.0, "DC-ASGD-c": 10.5, "DC-ASGD-a": 10.9}
    assert verdict("D2", lambda name: close).kind == "holds"
    assert verdict("D2", lambda name: {**close, "DC-ASGD-a": 12.0}).kind == "does not hold"
    losses = {"adam": 3.0, "adam_sa": 2.5, "adam_ga": 1.5}
    assert (
        verdict("G6", lambda name: {"test_loss": losses[name.split("/")[1]]}).kind
        == "holds with a choice"
    )
    assert verdict("G6", lambda name: {"test_loss": 1.5}).kind == "does not hold"

    def at_high_rates(name: str) -> Figures:
        fails = "/lr=0.004/" in name and "/adam_ga/" not in name
        return {"diverged": True} if fails else {"test_loss": 1.5}

    said = verdict("G6", at_high_rates)
    assert said.kind == "holds with a choice"
    assert said.why.startswith(
        "rates of 0.004: Adam and Adam-SA do not both fail at the paper's rate"
    )


def test_psp_and_backups() -> None:
    ends = {"32,100%": 0.9, "28,100%": 0.895, "28,90%": 0.89, "20,75%": 0.8}
    assert verdict("P2", lambda n: {"test_accuracy": ends[n.split("/")[0]]}).kind == "holds"
    ends["28,90%"] = 0.88
    said = verdict("P2", lambda n: {"test_accuracy": ends[n.split("/")[0]]})
    assert said.why == "28,90% end lower"

    def late(name: str) -> Figures:
        stale = int(name.split("/")[0].partition("=")[2])
        by_rate = 0.01 if "/lr=0.02/" in name else 0.0
        right = 0.98 - stale / 1e4 + by_rate
        return {
            f"{of}_accuracy{ema}": right for of in ("test", "validation") for ema in ("", "_ema")
        }

    said = verdict("B1", late)
    assert said.kind == "does not hold"  # at its best rate staleness 20 ends above 0
    assert said.ours.startswith(
        "error of the best run 2.00% at 0 (not averaged 2.00%), 1.20% at 20"
    )
    fresh = dict.fromkeys(late("staleness=0/lr=0.1/seed=0"), 0.995)
    better = {"staleness=0/lr=0.1/seed=2": fresh}  # one run is enough: the best counts
    said = verdict("B1", late, better)
    assert said.kind == "holds with a choice"
    assert said.why == "lower rates, by validation: 0.02 at 20 and 0.02 at 50"
    slow = {
        "staleness=50/lr=0.02/seed=1": {**late("staleness=50/lr=0.02/"), "test_accuracy_ema": 0.9}
    }
    only = {n: {"diverged": True} for n in found_names("B1") if n.startswith("staleness=50/")}
    said = verdict("B1", late, {**better, **only, **slow})
    assert said.why.endswith("0.02 at 50; at 50 it harms far more than published")
    said = verdict("B1", late, {**better, **only})
    assert said.why == "training fails at staleness 50, where the paper's did not"
    assert said.ours.endswith("diverged at 50")
    assert verdict("B1", lambda n: None if "/lr=0.1/" in n else late(n)).kind == "not measured yet"

    def trained(name: str) -> Figures:
        kind = name.split("/")[0]
        took = {"sync": 3.0, "backup": 2.0, "async": 1.0}[kind]
        return {"test_accuracy_ema": 0.9 if kind == "async" else 0.92, "time_s": took}

    assert verdict("B4", trained).kind == "holds with a choice"
    slow = {f"backup/seed={seed}": {"test_accuracy_ema": 0.9, "time_s": 4.0} for seed in range(3)}
    said = verdict("B4", trained, slow)
    assert said.why == (
        "it does not end above asynchronous training; it takes no less time than waiting for all"
    )


def tabled_rows(columns: list[str], *rows: tuple[Any, ...]) -> Callable[[str], Figures]:
    return lambda name: {"columns": columns, "rows": [list(row) for row in rows]}


def test_tables_of_schedules() -> None:
    columns = ["workers", "equal, limit", "different, limit"]
    right = ((32, 1.22, 3.0), (128, 1.28, 4.0), (1000, 1.37, 6.1))
    assert verdict("G9", tabled_rows(columns, *right)).kind == "holds with a choice"
    wrong = ((32, 1.05, 3.0), (1000, 1.1, 6.1))
    assert verdict("G9", tabled_rows(columns, *wrong)).kind == "does not hold"
    columns = ["waited for", "ratio", "ratio, 0 s", "ratio, 0.3 s"]
    assert verdict("P1", tabled_rows(columns, ("28, 90%", 0.7, 0.9, 0.72))).kind.startswith("holds")
    assert verdict("P1", tabled_rows(columns, ("28, 90%", 0.7, 0.9, 0.8))).kind == "does not hold"
    named = "best split, order statistics, updates interpolated straight"
    for split, kind in (("96 + 4", "holds with a choice"), ("90 + 10", "does not hold")):
        assert verdict("B2", tabled_rows(["what", "here"], (named, split))).kind == kind
    columns = ["layer", "mean delay, equal", "mean delay, fitted", "published"]
    means = {n: 39.0 - n for n in range(19)}
    for middle, kind in ((25.0, "holds with a choice"), (60.0, "does not hold")):
        rows = [(n, mean, mean, mean) for n, mean in (means | {14: middle}).items()]
        assert verdict("B3", tabled_rows(columns, *rows)).kind == kind
