"""A spec that uses most of what a spec can say."""

import tomllib
from typing import Any

EXAMPLE = """
updates = 60
seed = 7
measures = ["gap"]

[task]
name = "quadratic"
dimension = 10
noise = 0.1

[rule]
name = "gap_aware"
momentum = 0.5
ema = 0.9

[rule.lr]
rate = "warm_up"
over = 10
by = "updates"
after = {rate = "cosine", lr = 0.1, over = 100}

[work]
name = "gradient"
clip_norm = 2

[policy]
name = "async"
wait = false

[cluster]
name = "gamma"
workers = 4
heterogeneous = true
"""


def example() -> dict[str, Any]:
    return tomllib.loads(EXAMPLE)
