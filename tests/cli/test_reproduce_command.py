"""reproduce and claims, as a user meets them."""

import csv
import json
from pathlib import Path

import pytest

from tardigrad.reproduce import STUDIES
from tardigrad.reproduce.results_page import BEGIN, END
from tests.cli.command_line import Cli
from tests.reproduce.small_study import STUDY


def test_the_command_goes_on(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STUDIES, "small", STUDY)
    said = cli("reproduce", "small", "--cells", "lr=0.1/*")
    assert said.code == 0, said.err
    assert "lr=0.1/seed=1: finished in" in said.err
    assert "everything is in results/small" in said.out
    assert "2 of 4 cells are there already" in cli("reproduce", "small").err
    kept = json.loads(Path("results/small/cells/lr=0.1/seed=0.json").read_text())
    assert kept["made"]["command"] == "tardigrad reproduce small --cells 'lr=0.1/*'"
    Path("results/small/cells/doubled.json").write_text("{")
    said = cli("reproduce", "small")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "cells/doubled.json is no kept cell" in said.err


def test_claims_where_nothing_is_measured(cli: Cli) -> None:
    said = cli("claims")
    assert said.code == 0
    assert said.err == "there is no folder results, so nothing is measured yet\n"
    assert "not measured yet: 22, cannot be tested here: 2" in said.out
    assert cli("claims", "--write").err == (
        "error: there is no folder results: run this where results are, or give --results FOLDER\n"
    )


def test_claims_as_files(cli: Cli) -> None:
    page = Path("results/README.md")
    page.parent.mkdir()
    page.write_text(f"before\n{BEGIN}\n{END}\nafter\n")
    assert cli("claims", "--write").out == "written: results/README.md\n"
    table = cli("claims", "--markdown").out
    assert page.read_text() == f"before\n{BEGIN}\n{table}{END}\nafter\n"
    assert table.count("\n| ") == 24 + 1 - table.startswith("| ")
    assert cli("claims", "--csv", "ledger.csv").code == 0
    with open("ledger.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows][:3] == ["F1", "F2", "F3"]
    assert rows[0]["command"] == "tardigrad reproduce fasgd-fig1"


def test_a_spoiled_cell_is_told_by_claims_too(cli: Cli) -> None:
    path = Path("results/gamma-tails/cells/equal.json")
    path.parent.mkdir(parents=True)
    path.write_text("{")
    said = cli("claims")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(f"error: {path} is no kept cell")


def test_logs_of_ones_own_are_for_stragglers_alone(cli: Cli) -> None:
    said = cli("reproduce", "psp-times", "--traces", "logs")
    assert (said.code, said.err) == (2, "error: psp-times does not take --traces\n")
    Path("logs").mkdir()
    times = [(worker, step, 1.0 + (worker == step % 2)) for worker in (0, 1) for step in range(4)]
    rows = ["worker,step,step_s", *(f"{w},{s},{t}" for w, s, t in times)]
    Path("logs/two.csv").write_text("\n".join(rows))
    said = cli("reproduce", "stragglers", "--traces", "logs")
    assert said.code == 0, said.err
    assert "33.3%" in said.out  # Σ max ÷ Σ mean = 2 ÷ 1.5
    assert not Path("results").exists()
