"""What a name of a spec stands for, in words: signature, defaults, what each argument means.

All of it is read from signatures and docstrings. An argument that a maker passes on is told where
it is defined: at the class's base, or at a class that the function's code names.
"""

import inspect
import re
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from tardigrad.core.own_code import brief
from tardigrad.experiment.structure import Registry, Structure, hints_of, parameters_of

ARGS = re.compile(r"^Args:\n((?:[ ]{4,}.*\n?|\n)*)", re.M)
ELSEWHERE = re.compile(r"told at `(\w+)`")
"""Where a factory's docstring leaves the choices to the class that it is made of."""
ENTRY = re.compile(r"^    (\w+): (.*(?:\n {6,}.*)*)", re.M)


COMMON = {
    "lr": "η: a number, or a rate (`tardigrad list rates`).",
    "momentum": "γ.",
    "betas": "β1 and β2.",
    "alpha": "α.",
    "eps": "ε.",
    "workers": "how many there are; tasks and rates take it from the cluster.",
    "seed": "of initial parameters, data and batches; left out: the experiment's.",
    "batch_size": "samples in a gradient.",
    "sampling": "how a worker chooses: on its own, by common epochs, or from its own part.",
    "train_size": "how many samples to train on; left out: all.",
    "validation": "how many samples are kept apart for validation.",
    "data": "which data set (`tardigrad data list`).",
    "data_folder": "where data sets are kept; left out: the user's cache.",
    "augment": "how training images are varied: a name, or none.",
    "device": "where it is computed: cpu, cuda, cuda:1, ….",
    "dtype": "of the parameters: float32 or float64.",
    "precision": "of products; parameters stay in dtype.",
    "channels_last": "keep images channels last in memory, as convolutions on GPUs want.",
    "over": "how long it takes, in the unit of `by`.",
    "by": "what progress is counted in.",
}
"""What means the same wherever it stands, and so is not told at each place."""


class Argument(NamedTuple):
    """`default` as it would stand in a file; empty where the argument must be given."""

    name: str
    takes: str
    default: str
    meaning: str


class Description(NamedTuple):
    """`text` holds the formula and the paper."""

    name: str
    text: str
    arguments: list[Argument]

    @property
    def signature(self) -> str:
        words = [a.name + (f"={a.default}" if a.default else "") for a in self.arguments]
        return f"{self.name}({', '.join(words)})"


def described(structure: Structure, registry: Registry, name: str) -> Description:
    """One of the registry's, or one of the user's own."""
    maker, _ = structure.choose(registry, registry.kind, name)
    parameters, _ = parameters_of(maker, registry.kind)
    hints, known = hints_of(maker), meanings(maker)
    arguments = [
        Argument(
            one.name,
            _takes(hints.get(one.name, Any), structure),
            "" if one.default is one.empty else _plain(one.default),
            known.get(one.name) or COMMON.get(one.name, ""),
        )
        for one in parameters.values()
    ]
    text = _text(maker)
    for elsewhere in ELSEWHERE.findall(text):
        text += f"\n\n{elsewhere}: {_text(vars(sys.modules[maker.__module__])[elsewhere])}"
    return Description(brief(name), text, arguments)


def _text(part: Any) -> str:
    """The docstring without its arguments."""
    return re.sub(r"\n{3,}", "\n\n", ARGS.sub("", inspect.getdoc(part) or "")).strip()


def meanings(maker: Callable[..., Any]) -> dict[str, str]:
    """What docstrings say of arguments; the nearest to the maker counts."""
    out: dict[str, str] = {}
    for place in _places(maker):
        for section in ARGS.findall(inspect.cleandoc(place.__doc__ or "")):
            for name, text in ENTRY.findall(section + "\n"):
                out.setdefault(name, " ".join(text.split()))
    return out


def _places(maker: Callable[..., Any]) -> Iterator[Any]:
    """The maker, its bases, and what its code names."""
    if inspect.isclass(maker):
        yield from maker.__mro__[:-1]
        return
    yield maker
    code = getattr(inspect.unwrap(maker), "__code__", None)
    named = getattr(maker, "__globals__", {})
    for name in code.co_names if code is not None else ():
        if inspect.isclass(named.get(name)) or inspect.isfunction(named.get(name)):
            yield from _places(named[name]) if inspect.isclass(named[name]) else [named[name]]


OBJECT = "a Python object"
"""What no file can say."""
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}


def _takes(hint: Any, structure: Structure) -> str:
    origin, inner = get_origin(hint), get_args(hint)
    if hint in _WORDS:
        return _WORDS[hint]
    if origin is Literal:
        return " or ".join(f'"{choice}"' for choice in inner)
    if origin in (Union, types.UnionType):
        members = [_takes(member, structure) for member in inner if member is not type(None)]
        sayable = [words for words in dict.fromkeys(members) if words != OBJECT]
        return " or ".join(sayable or [OBJECT])
    if isinstance(hint, type) and hint in structure.registries:
        return f"a {structure.registries[hint].kind}"
    if origin in (tuple, list):
        return "a list"
    if hasattr(hint, "__dataclass_fields__"):
        return f"a table ({', '.join(hint.__dataclass_fields__)})"
    return "any" if hint is Any else OBJECT


def _plain(value: Any) -> str:
    """A default as a file would say it; what it cannot say is left out there."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    return repr(value)
