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
    "a few JSON lines among others": (
        "[INFO] workers, now\n[INFO] workers, 2\n[INFO] loaded\n"
        + "".join(
            f"step {i}, as ever\nof {h}\n{json.dumps({'host': h, 'i': i, 'took_s': t})}\n"
            for h, i, t in each()
        ),
        ["JSON, an object a line", "lines that are no JSON objects are left out: 15"],
    ),
    "blank lines and comments": (
        lines(
            "\n# of Tuesday\n  \nhost,duration_s",
            *(f'\n# "{i}" of 3, "well\n{h},{t}' for h, i, t in each()),
        ),
        ["lines that begin with # are left out: 6", "duration_s is in seconds"],
    ),
    "Markdown": (
        lines("\n| host | took_s |\n|:---|---:|", *(f"| {h} | {t} |" for h, _, t in each())),
        ["columns separated by bars"],
    ),
    "psql": (
        lines(
            "  host   | took_s \n---------+--------",
            *(f" {h:7} | {t:6} " for h, _, t in each()),
            "(6 rows)",
        ),
        ["columns separated by bars"],
    ),
    "mysql": (
        lines(
            "+-----+-----+\n| host | took_s |\n+-----+-----+",
            *(f"| {h} | {t} |" for h, _, t in each()),
            "+-----+-----+\n6 rows in set (0.00 sec)",
        ),
        ["columns separated by bars"],
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


def test_columns_of_words_beside_a_column_per_worker_are_told(tmp_path: Path) -> None:
    log = read(tmp_path, "step,a,b,note,other\n0,1.0,2.0,fine,\n1,3.0,4.0,5,\n")
    assert log.names == ("a", "b")
    assert "columns that are not numbers are left out: note, other" in log.guesses


@pytest.mark.parametrize(
    ("text", "took_s"),
    [
        ("host,timestamp\na,1700000000000000000\na,1700000000000001000\n", 1e-6),
        ("host,start,end\na,1700000000000,1700000000900\n", 0.9),
        ("host,timestamp\na,1700000000.1\na,1700000000.100000007\n", 7e-9),
        ("host,start_ms,end_us\na,1700000000000.5,1700000000000501\n", 1e-6),
        ("host,timestamp\na,2024-05-31T12:00:00.1Z\na,2024-05-31T14:00:00.100007+02:00\n", 7e-6),
        (
            '{"host": "a", "timestamp": 1700000000.1}\n'
            '{"host": "a", "timestamp": 1700000000.100000007}\n',
            7e-9,
        ),
    ],
)
def test_points_in_time_lose_no_digits(tmp_path: Path, text: str, took_s: float) -> None:
    assert [times.tolist() for times in read(tmp_path, text).times_s] == [[took_s]]


def test_dates_without_a_time_zone_are_fine_among_themselves(tmp_path: Path) -> None:
    log = read(tmp_path, "host,timestamp\na,2024-05-31\na,2024-05-31T00:00:02\n")
    assert log.times_s[0].tolist() == [2.0]


@pytest.mark.parametrize(
    "text",
    [
        'worker,note,step_s\n0,"\n{""a"": 1}\n{}\n",1.5\n',
        'worker;note;step_s\n0;{"a": 1};1.5\n',
        'note,worker,step_s\n"{""a"": 1}",0,1.5\n',
        'worker,note,step_s\n0,"\n# one\n\n{""a"": 1}\n{""b"": 2}\n{}\n{}\n",1.5\n',
    ],
)
def test_json_in_cells_is_no_log_of_json(tmp_path: Path, text: str) -> None:
    log = read(tmp_path, text)
    assert log.times_s[0].tolist() == [1.5]
    assert not any("JSON" in guess or "#" in guess for guess in log.guesses)


def test_what_a_name_says_in_full_is_not_told(tmp_path: Path) -> None:
    assert read(tmp_path, "worker,seconds\n0,1.5\n").guesses == ()
    assert read(tmp_path, "worker,ms\n0,1500\n").times_s[0].tolist() == [1.5]


def test_one_worker_is_told_as_one(tmp_path: Path) -> None:
    assert read(tmp_path, "host,step_s\na,1.5\n").guesses == ("1 worker by host: a is worker 0",)


def test_points_are_no_doubt_in_columns_that_are_not_needed(tmp_path: Path) -> None:
    log = read(tmp_path, "host;step_s;loss\na;1.5;1.234\na;2;0,5\n")
    assert log.times_s[0].tolist() == [1.5, 2.0]


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
        ("step,a,b,c\n0,1,1,1\n1,NaN,1,1\n", "line 3: a must be finite and greater than 0"),
        ("step,a,b\n0,1,1\n1,1,1\n2,N/A,1\n", "line 4: a must be a number, got 'N/A'"),
        ("step,a,b\n0,nan,1\n", "line 2: a must be finite"),
        ("host;ms\na;998,5\na;1.234\n", "line 3: 1.234 may be 1234 or 1,234, since its column"),
        ("host;ms\na;1.234,5\n", "line 2: 1.234,5 has points between thousands: write 1234,5"),
        ("step;a;b\n0;1,5;2,5\n1;1,5;2.5\n", "line 3: 2.5 may be 25 or 2,5"),
        ('host,note,ms\na,"x\ny\nz",1\na,,-1\n', "line 5: ms must be finite"),
        ("\n\nhost,ms\n\na,1\n# b\na\n", "line 7: 1 values for the 2 columns"),
        ('host,ms\na,1\nb,1\n{"done": 1}\n', "line 4: 1 values for the 2 columns host,ms"),
        ("| host | ms |\n|---|---|\n| a | 1\n", "line 3: must begin and end with a bar"),
        ("|host|ms|\nb\n", "line 2: must begin and end with a bar"),
        (
            "host,timestamp\na,2024-05-31T12:00:00Z\na,2024-05-31T12:00:01\n",
            "line 3: 2024-05-31T12:00:01 in timestamp is a date without a time zone, and before it "
            "stands a date with a time zone",
        ),
        ("host,start,end\na,1.7e9,2024-05-31\n", "line 2: 2024-05-31 in end is a date without"),
        ("host,timestamp\na,1e30\na,1\n", "line 2: 1e30 in timestamp is no point in time"),
        ("host,timestamp\na,1.2.3\na,1\n", r"line 2: timestamp must be a number, got '1\.2\.3'"),
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
