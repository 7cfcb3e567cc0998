"""Codecs and error feedback, number by number, written from their formulas.

Nothing here imports the package.
"""

from collections.abc import Callable, Sequence

Vector = list[float]
Coded = Callable[[Vector], Vector]


def top_k(values: Sequence[float], k: int) -> Vector:
    """The k largest sizes; of equal ones the lower position."""
    out = [0.0] * len(values)
    left = list(range(len(values)))
    for _ in range(k):
        best = left[0]
        for i in left:
            if abs(values[i]) > abs(values[best]):
                best = i
        left.remove(best)
        out[best] = values[best]
    return out


def chosen(values: Sequence[float], draws: Sequence[int], k: int) -> Vector:
    """Those whose draws are the k smallest."""
    out = [0.0] * len(values)
    for _, i in sorted((draw, i) for i, draw in enumerate(draws))[:k]:
        out[i] = values[i]
    return out


def sign(values: Sequence[float]) -> Vector:
    scale = sum(abs(v) for v in values) / len(values)
    return [-scale if v < 0 else scale for v in values]


def int8(values: Sequence[float], block: int) -> Vector:
    out: Vector = []
    for at in range(0, len(values), block):
        part = values[at : at + block]
        scale = max(abs(v) for v in part) / 127
        out += [scale * round(v / scale) if scale else 0.0 for v in part]
    return out


class FedBack:
    """One worker and one shard: p = e + g; send C(p); e ← p − C(p); held back: e ← p."""

    def __init__(self, length: int) -> None:
        self.error = [0.0] * length

    def push(self, grad: Sequence[float], coded: Coded, held: bool = False) -> Vector | None:
        p = [e + g for e, g in zip(self.error, grad, strict=True)]
        if held:
            self.error = p
            return None
        sent = coded(p)
        self.error = [one - other for one, other in zip(p, sent, strict=True)]
        return sent
