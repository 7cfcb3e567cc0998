"""Run scenarios: `python tests/simulation/simulate.py 0:500` (`make simulate SEEDS=0:500`)."""

import sys
import time
from collections import Counter

import torch

from tests.simulation.scenarios import draw, run


def main(seeds: str) -> int:
    torch.set_num_threads(1)
    first, _, last = seeds.partition(":")
    numbers = range(int(first), int(last)) if last else [int(first)]
    failed, began, cpu = [], time.perf_counter(), time.process_time()
    for seed in numbers:
        outcome = run(draw(seed))
        if outcome.error:
            failed.append((seed, outcome))
            print(f"seed {seed}: {outcome.error[:300]}", flush=True)
        if len(numbers) == 1:
            print(outcome.scenario, *outcome.story, sep="\n")
            print(outcome.trace, f"seed {seed}: {outcome.error or 'good'}", sep="\n")
    seconds = time.perf_counter() - began
    kinds = Counter(outcome.error.split(":")[0] for _, outcome in failed)
    print(
        f"{len(numbers)} scenarios, {len(failed)} failed {dict(kinds)}, "
        f"{60 * len(numbers) / seconds:.0f} a minute, "
        f"{1000 * (time.process_time() - cpu) / len(numbers):.0f} ms of CPU each"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
