"""Logs as people have them: the same step times in every form, and what cannot be known refused."""

import itertools
import json
from pathlib import Path

import pytest

from tardigrad.clusters.logs import StepLog, read_step_log

FIRST, SECOND = [1.5, 1.25, 2.0], [3.0, 2.5, 2.75]
"""Seconds of the steps of node-2 and node-10."""
BEGAN = 1_700_000_000.0


def read(tmp_path: Path, text: str) -> StepLog:
    path = tmp_path / "log"
    path.write_text(text)
    return read_step_log(path)


def lines(header: str, *rows: str) -> str:
    return "\n".join([header, *rows]) + "\n"


def moments(times: list[float]) -> list[float]:
    """When each step ended, and before them when the first began."""
    out = [BEGAN]
    for took in times:
        out.append(out[-1] + took)
    return out


def each() -> list[tuple[str, int, float]]:
    return [
        (host, step, took)
        for host, times in (("node-10", SECOND), ("node-2", FIRST))
        for step, took in enumerate(times)
    ]


def spans() -> list[tuple[str, float, float]]:
    """Host, start and end of every step."""
    out = []
    for host, times in (("node-10", SECOND), ("node-2", FIRST)):
        at = moments(times)
        out += [(host, a, b) for a, b in itertools.pairwise(at)]
    return out


FORMS = {
    "milliseconds by host, semicolons": (
        lines("Host;Step;Step time (ms)", *(f"{h};{i};{1000 * t:g}" for h, i, t in each())),
        ["columns separated by semicolons", "Step time (ms) is in milliseconds"],
    ),
    "decimal commas": (
        lines("host;duration", *(f"{h};{t:.3f}".replace(".", ",") for h, _, t in each())),
        ["1,5 is 1.5", "duration names no unit: taken as seconds"],
    ),
    "a column per worker, tabs": (
        lines(
            "step\tnode-2\tnode-10",
            *(f"{i}\t{a}\t{b}" for i, (a, b) in enumerate(zip(FIRST, SECOND, strict=True))),
        ),
        ["columns separated by tabs", "a column per worker: node-2, node-10"],
    ),
    "start and end since 1970, milliseconds by size": (
        lines("host,start,end", *(f"{h},{1000 * a:.0f},{1000 * b:.0f}" for h, a, b in spans())),
        ["a step lasts from start to end", "start is in milliseconds since 1970"],
    ),
    "dates": (
        lines(
            "hostname,timestamp,message",
            *(
                f'{host},"2024-02-29 23:59:{int(at - BEGAN):02},{1000 * (at % 1):03.0f}",step'
                for host, times in (("node-10", SECOND), ("node-2", FIRST))
                for at in moments(times)
            ),
        ),
        ["a step lasts from a worker's timestamp to its next"],
    ),
    "JSON lines with other events": (
        "".join(
            json.dumps(one) + "\n"
            for one in (
                {"event": "start", "args": {"lr": 1}},
                *({"host": h, "iteration": i, "elapsed_us": 1e6 * t} for h, i, t in each()),
            )
        ),
        [
            "JSON, an object a line",
            "lines without elapsed_us are left out: 1",
            "elapsed_us is in microseconds",
        ],
    ),
    "JSON lines among others": (
        "[INFO] starting\n"
        + "".join(json.dumps({"host": h, "i": i, "took_s": t}) + "\n" for h, i, t in each())
        + "\ndone\n",
        ["JSON, an object a line", "lines that are no JSON objects are left out: 2"],
    ),
    "a time that is since 1970": (
        lines(
            "node|time",
            *(
                f"{host}|{at}"
                for host, times in (("node-10", SECOND), ("node-2", FIRST))
                for at in moments(times)
            ),
        ),
        ["columns separated by bars", "time is in seconds"],
    ),
    "hosts with names in our own columns": (
        lines("worker,step_s", *(f"{h},{t}" for h, _, t in each())),
        ["2 workers by worker: node-2 is worker 0, node-10 is worker 1"],
    ),
    "machines with devices, out of order": (
        lines(
            "machine,gpu,iter,iter_time_ms",
            *(f"m,{int(h == 'node-10')},{i},{1000 * t}" for h, i, t in reversed(each())),
        ),
        ["2 workers by machine and gpu: m:0 is worker 0, m:1 is worker 1"],
    ),
    "ranks from 1": (
        lines("rank,step_seconds", *(f"{1 + (h == 'node-10')},{t}" for h, _, t in each())),
        ["workers are counted from 1: 1 is worker 0"],
    ),
    "a JSON list": (
        json.dumps([{"host": h, "took_s": t} for h, _, t in each()]),
        ["a JSON list of objects"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_foreign_logs_are_read_and_what_was_guessed_is_told(tmp_path: Path, form: str) -> None:
    text, told = FORMS[form]
    log = read(tmp_path, text)
    assert [times.tolist() for times in log.times_s] == [
        pytest.approx(FIRST, abs=1e-6),
        pytest.approx(SECOND, abs=1e-6),
    ]
    for words in told:
        assert any(words in guess for guess in log.guesses), log.guesses


def test_our_own_columns_need_no_guess(tmp_path: Path) -> None:
    log = read(tmp_path, "worker,step,step_s,host\n0,0,1.5,b\n1,0,2.5,a\n")
    assert (log.guesses, log.names) == ((), ("0", "1"))


def test_many_workers_are_guessed_in_few_lines(tmp_path: Path) -> None:
    columns = ",".join(f"node-{i}" for i in range(500))
    log = read(tmp_path, f"step,{columns}\n0{',1.5' * 500}\n")
    assert log.guesses == (
        "a column per worker: node-0, node-1, node-2, node-3, …",
        "a worker's column names no unit: taken as seconds",
        "500 workers by column: node-0 is worker 0, node-1 is worker 1, node-2 is worker 2, "
        "node-3 is worker 3, …",
    )


def test_missing_cells_of_a_wide_table_are_steps_not_made(tmp_path: Path) -> None:
    log = read(tmp_path, "step,a,b\n0,1.0,2.0\n1,,3.0\n2,4.0,\n3,5.0,6.0\n")
    assert [times.tolist() for times in log.times_s] == [[1, 4, 5], [2, 3, 6]]
    assert log.aligned_s().tolist() == [[1, 2], [5, 6]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("host,time\na,1.0\na,2.0\n", "time may be when a step ended or how long it took"),
        ("host,duration,elapsed\na,1.0,2.0\n", "duration, elapsed may each be a step's time"),
        ("step,loss,lr\n0,1.0,0.1\n", "loss, lr is not a worker"),
        ("host,loss\na,1.0\n", "no column is known to say how long a step took, among host, loss"),
        ("host,timestamp\na,1.0\nb,1.0\nb,2.0\n", "one line of worker a"),
        ("host,timestamp\na,1.0\na,1.0\n", "line 3: timestamp is that of another line"),
        ("host,timestamp\na,noon\na,1.0\n", "line 2: timestamp must be a number or a date"),
        ("host,start,end\na,2.0,1.0\n", "line 2: end is not after start"),
        ("host,duration\na,-1\n", "line 2: duration must be finite and greater than 0, got '-1'"),
        ("step,a,b\n0,1.0,-2.0\n", "line 2: b must be finite and greater than 0"),
        ("step,a,b\n0,1.7e9,1.7e9\n", "line 2: 1.7e9 in a is no step's time"),
        ("rank,took\n3,1.0\n5,2.0\n", "none for worker 0"),
        ('{"host": "a"}\n{"host": \n', "line 2 is not valid JSON"),
        ('[{"host": "a", "took": 1}, 1]', r"line 2: 1 is not a JSON object"),
        ('[{"host": "a"}, 2', "is not valid JSON"),
        ("[]", "has no lines"),
        ("a,a\n1,2\n", "line 1: a column stands twice"),
    ],
)
def test_what_cannot_be_known_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)
