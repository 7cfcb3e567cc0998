"""Arguments of version 0.1 under their old names, with a warning, for one release."""

import functools
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, ParamSpec, TypeVar

from tardigrad.core.checks import require

P = ParamSpec("P")
R = TypeVar("R")


class Grouped(NamedTuple):
    """Arguments that are now the fields of one."""

    group: Callable[..., Any]
    fields: Mapping[str, str]
    """Of each old argument, what it is called in the group."""


def grouped_arguments(**groups: Grouped) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function be called with what is now inside the arguments named here.

    Type checkers see the new signature alone.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def called(*args: P.args, **named: P.kwargs) -> R:
            words: dict[str, Any] = dict(named)
            for argument, (group, fields) in groups.items():
                old = [name for name in words if name in fields]
                if old:
                    new = f"{argument}={_written(group, [fields[name] for name in old])}"
                    told = f"{_listed(old)} of {function.__name__}: write {new}"
                    require(argument not in words, f"{told} and not both")
                    warnings.warn(told, DeprecationWarning, stacklevel=2)
                    words[argument] = group(**{fields[name]: words.pop(name) for name in old})
            return function(*args, **words)

        return called

    return decorate


def _written(group: Callable[..., Any], fields: list[str]) -> str:
    return f"tg.{group.__name__}({', '.join(f'{field}=…' for field in fields)})"


def _listed(names: list[str]) -> str:
    return f"the argument {names[0]}" if len(names) == 1 else f"the arguments {', '.join(names)}"
