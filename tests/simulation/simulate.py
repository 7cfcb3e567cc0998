"""Run scenarios: `make simulate SEEDS=0:500`, or one, with its story: `make simulate SEEDS=7`.

With `--policy quorum`, `--work local_adamw`, `--codec top_k` or `--rule adam` all have that one, as
in `make simulate SEEDS="0:2000 --codec top_k"`. What has been run is kept, and told with it.
`make simulate MUTATIONS=1` takes each safeguard out in turn and says after how many scenarios that
was found.
"""

import argparse
import json
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.simulation.faults import KINDS
from tests.simulation.mutations import MUTATIONS, without
from tests.simulation.scenarios import (
    CODECS,
    DRAWN,
    POLICIES,
    RULES,
    WORKS,
    Fixed,
    Outcome,
    draw,
    run,
)

KEPT = Path(".simulated.json")
NO_FAULT = "none"


class Result(NamedTuple):
    seed: int
    policy: str
    parts: list[str]
    """The work and the codec, where they are not the usual ones, and faults that came about."""
    error: str
    cpu_s: float


def simulate(seed: int, fixed: Fixed = DRAWN) -> Result:
    torch.set_num_threads(1)
    began_s = time.process_time()
    outcome = run(draw(seed, fixed))
    scenario = outcome.scenario
    return Result(
        seed,
        scenario.policy,
        [
            *(sorted(outcome.happened) or [NO_FAULT]),
            *(part for part in (scenario.work, scenario.codec) if part in (*WORKS, *CODECS)),
        ],
        outcome.error,
        time.process_time() - began_s,
    )


def tell(outcome: Outcome) -> str:
    """A scenario's story, and how to run it alone."""
    seed = outcome.scenario.seed
    return "\n".join(
        [
            str(outcome.scenario),
            *outcome.story,
            outcome.trace,
            f"seed {seed}: {outcome.error or 'all is well'} (alone: make simulate SEEDS={seed})",
        ]
    )


def _results(seeds: range, processes: int, fixed: Fixed) -> Iterator[Result]:
    one = partial(simulate, fixed=fixed)
    if processes == 1:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap_unordered(one, seeds, chunksize=10)


def _simulate(seeds: range, processes: int, kept: Path, fixed: Fixed) -> int:
    began_s = time.perf_counter()
    results, failed = [], []
    for result in _results(seeds, processes, fixed):
        results.append(result)
        if result.error:
            failed.append(result.seed)
            print(tell(run(draw(result.seed, fixed))), flush=True)
    seconds = time.perf_counter() - began_s
    cpu_ms = 1000 * sum(result.cpu_s for result in results) / len(results)
    total = _keep(kept, results)
    print(_table(total["faults"]))
    print(
        f"{len(results)} scenarios, {len(failed)} failed {failed or ''}; "
        f"{60 * len(results) / seconds:.0f} a minute, {cpu_ms:.0f} ms of CPU each; "
        f"{total['scenarios']} in all, {total['failed']} failed"
    )
    return 1 if failed else 0


def _keep(path: Path, results: Iterable[Result]) -> dict[str, Any]:
    """Add to what has been run before."""
    empty = {"scenarios": 0, "failed": 0, "faults": {}}
    total: dict[str, Any] = json.loads(path.read_text()) if path.exists() else empty
    for result in results:
        total["scenarios"] += 1
        total["failed"] += bool(result.error)
        for part in result.parts:
            counts = total["faults"].setdefault(part, {})
            counts[result.policy] = counts.get(result.policy, 0) + 1
    path.write_text(json.dumps(total, indent=1))
    return total


def _table(faults: dict[str, dict[str, int]]) -> str:
    """In how many scenarios each fault came about, and each work and codec was, by policy."""
    lines = [f"| {'':18} | " + " | ".join(POLICIES) + " |"]
    for fault in (NO_FAULT, *KINDS, *WORKS, *CODECS):
        counts = faults.get(fault, {})
        cells = (f"{counts.get(policy, 0):{len(policy)}}" for policy in POLICIES)
        lines.append(f"| {fault:18} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def find(safeguard: str, most: int, first: int = 0) -> tuple[int, str] | None:
    """Without this safeguard, how many scenarios it takes until one fails, and how."""
    for count in range(1, most + 1):
        with without(safeguard):
            outcome = run(draw(first + count - 1))
        if outcome.error:
            seed = outcome.scenario.seed
            # What was put in a safeguard's place no longer fits: that finds nothing.
            assert not outcome.error.startswith("TypeError"), f"{safeguard}: {outcome.error}"
            assert not run(draw(seed)).error, f"seed {seed} fails with the safeguard too"
            return count, outcome.error
    return None


def _mutate(safeguards: Iterable[str], most: int) -> int:
    kinds: Counter[bool] = Counter()
    for safeguard in safeguards:
        found = find(safeguard, most)
        kinds[found is None] += 1
        what = f"not found in {most}" if found is None else f"{found[0]:5} | {found[1][:90]}"
        print(f"| {safeguard:48} | {what} |", flush=True)
    return 1 if kinds[True] else 0


def main(arguments: list[str] | None = None) -> int:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seeds", help="a seed, or FIRST:BEHIND")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--kept", type=Path, default=KEPT)
    known = {"policy": [*POLICIES], "work": [*WORKS], "codec": [*CODECS], "rule": [*RULES]}
    for name, choices in known.items():
        parser.add_argument(f"--{name}", choices=choices, help="this one in all of them")
    parser.add_argument("--mutations", nargs="*", metavar="SAFEGUARD", help="to be taken out")
    given = parser.parse_args(arguments)
    first, _, behind = given.seeds.partition(":")
    fixed = Fixed(given.policy, given.work, given.codec, given.rule)
    if given.mutations is not None:
        return _mutate(given.mutations or MUTATIONS, int(behind or first))
    if not behind:
        outcome = run(draw(int(first), fixed))
        print(tell(outcome))
        return 1 if outcome.error else 0
    return _simulate(range(int(first), int(behind)), given.processes, given.kept, fixed)


if __name__ == "__main__":
    sys.exit(main())
