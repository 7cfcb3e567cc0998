"""Learning rates of their own for some tensors, as parameter groups have them in torch.

A tensor whose rate is scaled by s is updated as if the whole model had the rate s·η (and the
largest rate s·η_max). So the update is computed once for every factor, and each parameter takes
what belongs to its own: that is torch's step to the bit, for every optimizer and correction, where
a vector of rates would round otherwise.

**Choices**: the first pattern that fits a name counts. What a part keeps that is not one number for
each parameter follows the rate without a factor.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor

from tardigrad.core.checks import positive, require
from tardigrad.core.layout import Layout
from tardigrad.core.trees import leaves, rebuilt

Scales = tuple[tuple[str, float], ...]
"""(pattern of names, factor)"""


def checked_scales(given: Mapping[str, float] | Scales) -> Scales:
    pairs = tuple(given.items()) if isinstance(given, Mapping) else given
    good = isinstance(pairs, tuple | list) and all(
        isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    )
    require(
        good, f'rate_scale must be factors by patterns, such as {{"head.*": 10.0}}, got {given!r}'
    )
    for pattern, factor in pairs:
        positive(f"rate_scale[{pattern!r}]", factor)
    return tuple((pattern, float(factor)) for pattern, factor in pairs)


def scaled_parameters(scales: Scales, theta: Tensor, layout: Layout) -> tuple[Tensor, ...]:
    """For each pattern, 1 for the parameters whose rate it scales and 0 for the others."""

    def whose(name: str) -> int:
        fits = (i for i, (pattern, _) in enumerate(scales) if fnmatchcase(name, pattern))
        return next(fits, -1)

    def mask(index: int) -> Callable[[str], float]:
        return lambda name: float(whose(name) == index)

    return tuple(layout.by_name(mask(i), theta) for i in range(len(scales)))


def chosen(masks: Sequence[Tensor], plain: Any, scaled: Sequence[Any]) -> Any:
    """The tree `plain`, but what belongs to the parameters of each mask from that one of `scaled`.

    Exactly one factor is 1 and the others are 0, so no number changes.
    """
    others = 1 - sum(masks[1:], masks[0])
    found = []
    for first, *rest in zip(leaves(plain), *(leaves(tree) for tree in scaled), strict=True):
        if first.shape != others.shape or all(one is first for one in rest):
            found.append(first)
        else:
            parts = (mask * one for mask, one in zip(masks, rest, strict=True))
            found.append(sum(parts, others * first))
    return rebuilt(plain, found)
