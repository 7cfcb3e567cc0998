"""Pages as files: their data is exact and compact, no name becomes code, nothing is asked for."""

import base64
import hashlib
import html.parser
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tardigrad as tg
from tardigrad.experiment import Spec, run
from tardigrad.report.page import PageRun, notices, run_shown, write_page
from tardigrad.report.page.curves import delay_line, evaluated_lines, gradient_line
from tardigrad.report.page.packing import packed_ints, packed_times
from tardigrad.report.page.timeline_data import timeline_data
from tardigrad.report.page.write import ASSETS, SCRIPTS, joint_title, page_text
from tardigrad.report.series import Series
from tardigrad.scheduling.analysis import Summary
from tardigrad.tasks import quadratic
from tests.cli.command_line import SMALL, Cli
from tests.report.page_runs import BAD, disturbed, late, page_run, together


def unpacked(packed: dict[str, Any]) -> list[int]:
    """What data.js reads, in Python."""
    if "all" in packed:
        return [packed["all"]] * packed["length"]
    values = np.frombuffer(base64.b64decode(packed["data"]), packed["type"]).astype(np.int64)
    found: list[int] = (np.cumsum(values) if packed["delta"] else values).tolist()
    return found


@pytest.mark.parametrize(
    ("values", "size"),
    [
        ([], 0),
        ([7, 7, 7, 7], 0),
        ([0, 3, 255, 9], 1),
        ([-1, 3, 100, 9], 1),
        ([0, 300, 5, 1], 2),
        ([1000, 1001, 1003, 1260], 2),
        ([100, 200, 300, 400], 1),  # by their differences
        ([2**32 - 1, 0, 5, 5], 4),
        ([-(2**31), 2**31 - 1, 0, 1], 4),
    ],
)
def test_numbers_are_packed_small_and_come_back(values: list[int], size: int) -> None:
    packed = packed_ints(values)
    assert unpacked(packed) == values
    assert len(base64.b64decode(packed.get("data", ""))) == size * len(values)


def test_numbers_beyond_32_bits_are_no_page_s() -> None:
    with pytest.raises(OverflowError, match="32 bits"):
        packed_ints([0, 2**33])


def test_times_are_exact_to_the_billionth_and_equal_ones_stay_equal() -> None:
    times = np.sort(np.random.default_rng(0).exponential(size=1000).cumsum().repeat(2))
    packed = packed_times(times, float(times[-1]))
    found = np.array(unpacked(packed["ticks"])) * packed["unit"]
    assert np.abs(found - times).max() <= times[-1] * 1e-9
    assert (np.diff(found)[::2] == 0).all()
    assert unpacked(packed_times(np.zeros(3), 0.0)["ticks"]) == [0, 0, 0]
    assert unpacked(packed_times(np.array([-0.1, 1.0]), 1.0)["ticks"]) == [0, 2**32 - 1]


def test_only_the_first_of_many_gradients_are_shown_and_the_page_says_so() -> None:
    made = late(400)
    data = timeline_data(made, gradients=100)
    assert data["gradients"] == made.rows
    assert len(unpacked(data["worker"])) == 100
    assert data["end"] == made.start_s[100]
    known = unpacked(data["delay"][0])
    shown = [row for row in range(100) if known[row] >= 0]
    first = [r for r in made.group_rows.tolist() if r < 100]
    times = dict(zip(made.group_rows.tolist(), made.group_time_s.tolist(), strict=True))
    assert shown == sorted(row for row in first if times[row] <= data["end"])
    assert timeline_data(made)["whole"] is True


def test_local_steps_are_told_of_each_row_or_of_all() -> None:
    assert timeline_data(late(20))["taken"] == 1
    local = tg.schedule(tg.Sync(), tg.Constant(2, (1.0, 4.0)), 6, batches=8)
    assert timeline_data(local)["taken"] == 8
    paced = tg.schedule(tg.DyLU(tg.Sync()), tg.Constant(2, (1.0, 4.0)), 6, batches=8)
    assert unpacked(timeline_data(paced)["taken"]) == paced.steps.tolist()
    assert len(set(paced.steps)) > 1


class Tags(html.parser.HTMLParser):
    """Every tag with its attributes, and what stands in each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if self._script:
            self.inside.append(data)
            self._script = False


def test_nothing_that_was_named_becomes_a_tag() -> None:
    run = page_run(late(), BAD, spec=BAD, command=BAD)
    text = page_text([run, page_run(together(), f"{BAD} too")], BAD)
    tags = Tags(text).tags
    assert [name for name, _ in tags if name in ("script", "img")] == ["script", "script"]
    (data,) = re.findall(r'id="data">(.*?)</script>', text)
    assert not set("<>&") & set(data)
    shown = json.loads(data)
    assert shown["title"] == shown["runs"][0]["label"] == shown["runs"][0]["spec"] == BAD
    plain = page_text([page_run(late())], "plain")
    assert {name for name, _ in Tags(plain).tags} == {name for name, _ in tags}


def test_the_page_runs_its_own_scripts_alone_and_asks_for_nothing() -> None:
    found = Tags(page_text([page_run(late())], "a page"))
    rules = [a["content"] for name, a in found.tags if a.get("http-equiv")]
    style, _, script = found.inside
    digests = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (script, style)
    ]
    allowed = f"script-src 'sha256-{digests[0]}'; style-src 'sha256-{digests[1]}'"
    assert rules == [f"default-src 'none'; {allowed}"]
    asking = {"src", "href", "action", "data", "srcset", "poster"}
    assert not [a for _, a in found.tags if asking & set(a)]
    assert "url(" not in style
    assert "@import" not in style
    for name in SCRIPTS:
        ours = (ASSETS / name).read_text()
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in ours, name
        for word in ("fetch(", "XMLHttpRequest", "import(", "http:", "https:", "</script"):
            assert word not in ours, name


def test_a_page_without_data_is_small_and_carries_the_licence_of_what_it_uses() -> None:
    text = page_text([page_run(late(10))], "small")
    assert len(text) < 200_000
    assert (ASSETS / "uplot/LICENSE").read_text() in text
    assert "Leon Sorokin" in text


def test_delays_are_averaged_over_stretches_and_by_bytes_between_evaluations() -> None:
    made = late(300)
    one = page_run(made)
    line = delay_line(made, one.records)
    assert line is not None
    updates, means = line["by"]["update"]
    assert updates == list(range(2, 301, 2))
    delays = made.delays
    assert means[7] == pytest.approx(delays[14:16].mean())
    assert line["by"]["time"][0] == made.group_time_s[1::2].tolist()
    crossed, means = line["by"]["bytes"]
    assert crossed == [r["push_bytes"] + r["pull_bytes"] for r in one.records[1:]]
    assert means[2] == pytest.approx(delays[30:45].mean())


def test_of_a_group_every_gradient_counts() -> None:
    made = together(20, workers=3)
    given = list(range(60))
    line = gradient_line("gap", given, made, [])
    assert line is not None
    updates, means = line["by"]["update"]
    assert updates == [1 + k // 3 for k in range(60)]
    assert means == given
    assert "bytes" not in line["by"]
    assert gradient_line("gap", given[:-1], made, []) is None


def test_evaluations_are_the_mean_over_seeds_and_nan_is_nothing() -> None:
    runs = [
        [{"update": 0, "time_s": 0.0, "test_loss": 4.0}, {"update": 9, "time_s": t, "test_loss": y}]
        for t, y in ((2.0, 1.0), (4.0, 3.0))
    ]
    facts = [{"status": "finished", "delay_counts": [1]}] * 2
    (line,) = evaluated_lines(Series("a", runs, facts), "loss")
    assert line["name"] == "test loss"
    assert line["by"] == {"update": [[0, 9], [4.0, 2.0]], "time": [[0, 3.0], [4.0, 2.0]]}
    runs[0][1]["test_loss"] = float("nan")
    (line,) = evaluated_lines(Series("a", runs[:1], facts[:1]), "loss")
    assert line["by"]["update"][1] == [4.0, None]


def test_what_to_notice_is_what_the_schedules_say() -> None:
    one, two = page_run(together(), "sync"), page_run(late(), "async")
    waiting = Summary.of(together()).waiting
    first, second, third = notices([one, two])
    assert first.startswith(f"sync: workers wait for {waiting:.0%} of their time")
    assert "no gradient is late, 4 of one version make each update" in first
    delays = late().delays
    assert second.startswith("async: workers never wait; gradients are ")
    assert f"{delays.mean():.1f} updates late on average and {delays.max()} at most" in second
    assert re.match(
        r"Both reach a validation loss of 0.0282: \w+ first, after .* last, after", third
    )
    alone = notices([two])
    assert alone[0] == "Workers never wait."
    assert alone[2].startswith("The validation loss goes from 2 to ")
    assert "dropped" in notices([page_run(disturbed())])[1]
    assert notices([PageRun(one.series, "curves alone")]) == []


def test_a_loss_that_is_no_number_is_reached_by_nobody() -> None:
    one, two, three = page_run(together(), "sync"), page_run(late(), "async"), page_run(late(), "x")
    one.series.runs[0][-1]["validation_loss"] = math.nan
    assert len(notices([one, two])) == len(notices([two, one])) == 2
    assert notices([one, two, three])[2].startswith("Both reach a validation loss of 0.00664: ")


def test_a_run_that_ends_before_its_first_update_is_reported(cli: Cli) -> None:
    ended = cli("run", "small.toml", "stop.loss=10.0")
    assert ended.code == 0, ended.err
    assert "ended at update 0" in ended.out + ended.err
    assert "warning" not in ended.err  # of figures without an extent
    run = tg.Run.load("runs/small")
    facts = Summary.of(run.schedule)
    assert (facts.update_s, facts.gradients_per_update) == (0.0, 0.0)
    curve = Series("sgd", [run.history.records], [{"status": "stopped"}])
    page = PageRun(curve, "ended", run.schedule)
    assert notices([page]) == ["Workers never wait.", "No gradient is applied."]
    assert cli("report", "--html", "runs/small").code == 0


def test_what_titles_have_in_common_is_said_once() -> None:
    assert (
        joint_title(["a, 4 workers, sync", "a, 4 workers, async"]) == "a, 4 workers: sync and async"
    )
    assert joint_title(["a, sync", "a, sync"]) == "a, sync"
    assert joint_title(["a, sync", "b, sync"]) == "a, sync and b, sync"
    assert joint_title(["a", "a, sync"]) == "a and a, sync"


def simulated(folder: Path | None = None, **options: Any) -> tg.Run:
    saving = None if folder is None else tg.Checkpoints(folder)
    usual: dict[str, Any] = {"cluster": tg.Gamma(workers=3), "updates": 30, "evaluation": 10}
    task = quadratic(dimension=5)
    return tg.simulate(task, tg.rules.sgd(lr=0.05), checkpoints=saving, **{**usual, **options})


def data_in(path: Path) -> dict[str, Any]:
    (data,) = re.findall(r'id="data">(.*?)</script>', path.read_text())
    found: dict[str, Any] = json.loads(data)
    return found


def test_a_run_writes_its_page_alone_or_beside_another(tmp_path: Path) -> None:
    one, two = simulated(policy=tg.Sync()), simulated()
    one.html(tmp_path / "one.html")
    assert [run["label"] for run in data_in(tmp_path / "one.html")["runs"]] == ["Sgd"]
    one.html(tmp_path / "two.html", beside=two)
    found = data_in(tmp_path / "two.html")
    assert [run["label"] for run in found["runs"]] == ["Sgd, Sync", "Sgd, Async"]
    assert all(run["timeline"]["workers"] == 3 for run in found["runs"])
    one.html(tmp_path / "same.html", beside=one)
    labels = [run["label"] for run in data_in(tmp_path / "same.html")["runs"]]
    assert labels == ["this run", "beside it"]
    with pytest.raises(ValueError, match=r"end its name in .html"):
        one.html(tmp_path / "page.htm")
    with pytest.raises(ValueError, match="there is no folder"):
        one.html(tmp_path / "nowhere/page.html")


def test_a_run_that_nothing_was_measured_of_has_its_timeline(tmp_path: Path) -> None:
    task = tg.FunctionTask(torch.ones(3), lambda view, worker, step: view)
    made = tg.simulate(task, tg.rules.sgd(lr=0.1), cluster=tg.Gamma(workers=2), updates=4)
    write_page([run_shown(made)], tmp_path / "page.html")
    (shown,) = data_in(tmp_path / "page.html")["runs"]
    assert shown["timeline"]["shards"] == 1
    assert shown["curves"]["loss"] == []


def test_report_writes_the_page_of_any_folder(tmp_path: Path, cli: Cli) -> None:
    made = simulated(tmp_path / "python")
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    run(Spec.load(path, ["measures=['gap']", "engine=exact"]), tmp_path / "spec")
    for name in ("python", "spec"):
        said = cli("report", "--html", name)
        assert (said.code, said.err) == (0, "")
        assert f"page: {name}/report.html" in said.out
        (shown,) = data_in(tmp_path / name / "report.html")["runs"]
        assert len(shown["curves"]["loss"]) == 2
        assert bool(shown["curves"]["gap"]) == (name == "spec")
    assert shown["command"] == "tardigrad run spec.toml"
    assert tg.Spec.load(tmp_path / "spec/spec.toml").updates == 60
    assert shown["spec"] == (tmp_path / "spec/spec.toml").read_text()
    (told,) = data_in(tmp_path / "python/report.html")["runs"]
    assert json.loads(told["spec"])["cluster"]["name"] == "Gamma"
    assert len(unpacked(told["timeline"]["worker"])) == int(
        (made.schedule.start_s <= made.schedule.end_time).sum()
    )


def test_report_sets_runs_side_by_side_on_a_page_and_only_there(tmp_path: Path, cli: Cli) -> None:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    for policy in ("sync", "async"):
        run(Spec.load(path, [f"policy.name={policy}"]), tmp_path / policy)
    said = cli("report", "--html", "sync", "async", "--out", "both.html")
    assert said.code == 0
    assert "Both reach a validation loss" in said.out
    found = data_in(tmp_path / "both.html")
    assert [one["label"] for one in found["runs"]] == ["sgd, Sync", "sgd, Async"]
    assert found["title"] == "logistic regression, 4 workers (gamma): sync and async"
    assert "add --html" in cli("report", "sync", "async").err
    assert "leave --baseline out" in cli("report", "--html", "sync", "--baseline", "sgd").err
    assert "one page" in cli("report", "--html", "sync", "--out", "a.html", "--out", "b.html").err
    assert "end its name in .html" in cli("report", "--html", "sync", "--out", "a.pdf").err
    assert "holds no run" in cli("report", "--html", "nowhere").err


def test_a_comparison_s_page_has_its_curves_and_its_command(tmp_path: Path, cli: Cli) -> None:
    assert cli("compare", "small.toml", "--rules", "sgd,fasgd:lr=0.01", "--seeds", "2").code == 0
    assert cli("report", "--html", "runs/small-compare").code == 0
    found = data_in(tmp_path / "runs/small-compare/report.html")
    assert [one["label"] for one in found["runs"]] == ["sgd", "fasgd:lr=0.01"]
    assert found["runs"][0]["command"] == (
        "tardigrad compare spec.toml --rules sgd,fasgd:lr=0.01 --seeds 2"
    )
    assert found["runs"][0]["timeline"]["workers"] == 4
    assert found["runs"][1]["timeline"] is None  # it met the same schedule
    assert all(one["curves"]["loss"] for one in found["runs"])
    cli("run", "small.toml")
    said = cli("report", "--html", "runs/small-compare", "runs/small")
    assert "give a comparison alone" in said.err


def test_run_leaves_its_page(tmp_path: Path, cli: Cli) -> None:
    said = cli("run", "small.toml")
    assert "page: runs/small/report.html" in said.out
    assert data_in(tmp_path / "runs/small/report.html")["runs"][0]["timeline"]["workers"] == 4
