"""Tables on narrow screens and in files: no label and no digit of any command is lost."""

import sys
from collections import Counter
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import tardigrad as tg
from tardigrad.bench import BENCHMARKS
from tardigrad.cli import show as shown
from tardigrad.cli.console import out
from tardigrad.cli.listed import LISTS
from tardigrad.cli.live import tables as live_tables
from tardigrad.core.result_table import ResultTable
from tardigrad.core.text_table import TextTable
from tardigrad.experiment.real import real_beside_simulated
from tardigrad.reproduce import STUDIES
from tardigrad.reproduce.tabled import tabled
from tests.cli.command_line import Cli

WIDTHS = (20, 40, 60, 80, 90, 120, 200)

FOUND = ResultTable(
    title="a title of several words",
    columns=("workload", "a long header", "another one", "and a third", "fourth"),
    rows=(("μ=128, λ=250, gamma", 1234567.0, 0.123456, 987.65, 12_345),),
    notes=("a remark that is longer than the narrowest of all the screens",),
    figures=(Path("a/long/path/to/a/figure/that/must/not/be/broken.png"),),
)

COMMANDS = {
    "compare": (
        "compare small.toml --rules sgd,staleness_aware,gap_aware:lr=0.001:momentum=0.5",
        "report runs/small-compare --target 0.5",
    ),
    "compare seeds": (
        "compare small.toml updates=1200 --rules sgd,fasgd:lr=0.005 --seeds 2 --target 0.6 "
        "policy={name='backup',backups=1}",
    ),
    "run": ("run small.toml", "report runs/small --target 0.5"),
    "sweep": (
        "sweep small.toml rule.lr=[0.001,1e30] policy=[async,sync] --jobs 1 updates=100 "
        "task={name='quadratic',dimension=10}",
        "report runs/small-sweep --target 0.5",
    ),
    "plan": ("plan small.toml --gradients 400",),
    "demo": ("demo --gradients 64",),
    **{f"list {what}": (f"list {what}",) for what in LISTS},
    "data": ("data list",),
    "bench": ("bench", "bench schedule"),
    "reproduce": ("reproduce found",),
}


def drawn(table: Any, width: int, terminal: bool = True) -> str:
    """As it comes out of a terminal of this width, or into a file."""
    written = StringIO()
    kind: dict[str, Any] = {"force_terminal": terminal, "color_system": None, "soft_wrap": True}
    Console(width=width, file=written, **kind).print(table)
    return written.getvalue()


def check_whole(table: TextTable) -> None:
    """Every word of every header and cell stands in it unbroken, at any width."""
    cells = [*(table.columns if table.headed else ()), *(c for row in table.rows for c in row)]
    words = Counter(word for cell in cells for word in cell.split())
    for width in WIDTHS:
        text = drawn(table, width)
        assert not words - Counter(text.split()), f"at {width}:\n{text}"
        for line in text.splitlines():
            assert len(line) <= width or len(line.split()) == 1, f"at {width}: {line}"
    in_file = drawn(table, 80, terminal=False).splitlines()
    assert len(in_file) == len(table.rows) + 2 * table.headed, "a file has no edge"
    for row in table.rows:
        assert any(all(cell in line for cell in row) for line in in_file), row


@pytest.mark.parametrize("which", COMMANDS)
def test_no_width_loses_a_label_or_a_digit(
    which: str, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: list[TextTable] = []
    print_ = out.print

    def keeping(*things: Any, **options: Any) -> None:
        tables.extend(thing for thing in things if isinstance(thing, TextTable))
        print_(*things, **options)

    monkeypatch.setattr(out, "print", keeping)
    monkeypatch.setitem(BENCHMARKS, "schedule", lambda: FOUND)
    monkeypatch.setitem(STUDIES, "found", tabled("found", "a study", lambda folder: FOUND))
    demo = {"name": "logistic_regression", "train_size": 100}
    monkeypatch.setattr("tardigrad.cli.demo.TASK", demo)
    for words in COMMANDS[which]:
        said = cli(*words.split())
        assert said.code == 0, said.err
    assert len(tables) >= len(COMMANDS[which])
    for table in tables:
        check_whole(table)


def test_a_real_run_beside_the_simulation() -> None:
    cluster = tg.Gamma(workers=4, heterogeneous=True)
    made = [tg.schedule(tg.Async(), cluster, 400, seed) for seed in range(3)]
    found = real_beside_simulated(*made)
    rows = found.texts()
    check_whole(TextTable(found.columns, rows, found.keys))
    assert "" not in found.data()["rows"][0]


def test_the_live_tables() -> None:
    shard = SimpleNamespace(
        version=1234, queue=2, bytes_in=4e9, bytes_out=8e6, dropped={0: 3}, delays={0: (9, 18)},
        loss=float("nan"),
    )  # fmt: skip
    worker = SimpleNamespace(steps=1234567, busy_s=1.0)
    live: Any = SimpleNamespace(time_s=3.0, shards=[shard, shard], workers={0: worker, 11: worker})
    line, _, workers, _, shards = live_tables(live, live, 60_000).renderables
    assert line == "update 1,234 of 60,000"  # neither loss nor rate is known yet
    assert isinstance(workers, TextTable)
    assert isinstance(shards, TextTable)
    check_whole(workers)
    check_whole(shards)
    assert [cells[1] for cells in shards.rows] == ["1,234 of 60,000"] * 2


def test_titles_and_remarks_are_wrapped_and_paths_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    written = StringIO()
    console = Console(width=30, file=written, force_terminal=True, color_system=None)
    console.soft_wrap = True
    monkeypatch.setattr(shown, "out", console)
    shown.show(FOUND)
    assert all(len(line) <= 30 or " " not in line[8:] for line in written.getvalue().splitlines())
    assert f"figure: {FOUND.figures[0]}\n" in written.getvalue()


def test_there_is_one_maker_of_tables() -> None:
    source = Path(tg.__file__).parent
    makers = [path for path in source.rglob("*.py") if "rich.table" in path.read_text()]
    assert makers == []


def test_a_table_is_divided_before_it_becomes_records() -> None:
    columns = ("rule", "loss of all", "accuracy", "updates", "time")
    rows = [("sgd", "0.1234 ± 0.0012", "91.23% ± 0.50%", "1,196", "12,345")]
    table = TextTable(columns, rows)
    texts = {width: drawn(table, width) for width in (60, 40, 20)}
    assert texts[60].splitlines()[0].split() == [w for c in columns for w in c.split()]
    assert texts[40].count("sgd") == 2
    assert texts[40].count("─\n") == 2
    assert texts[20].splitlines()[:3] == ["rule         sgd", "loss of all", "  0.1234 ± 0.0012"]
    assert drawn(TextTable(("a", "b"), [("x", "1"), ("y", "2")]), 2).split() == list(
        "axb1ay" + "b2"
    )


def test_columns_without_a_name_are_refused() -> None:
    with pytest.raises(ValueError, match="a name of its own"):
        ResultTable("t", ("", "a"), ())


def test_nothing_wraps_where_there_is_no_terminal(cli: Cli) -> None:
    assert not sys.stdout.isatty()
    said = cli("list", "rules")
    assert len(said.out.splitlines()) == len(LISTS["rules"].registry.makers)
