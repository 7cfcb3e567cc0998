"""An experiment's file as plain data: read, changed by dotted paths, compared."""

import tomllib
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.own_code import factory, located, own_name
from tardigrad.experiment.structure import Plain, join, parameters_of

Table = Mapping[str, Plain]
"""A section of the file: `name` says which, the rest are its arguments."""

SECTIONS = ("task", "rule", "cluster", "policy", "link", "work")
"""Tables that name something, and may be a bare name where it needs no arguments."""
LOCATED = (*SECTIONS, "log")
"""What may name a file of the user's own, by its path from the folder of whoever names it."""


def read_toml(path: Path) -> dict[str, Plain]:
    """What a file says; the user's own code in it is looked for from the file's folder."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        return {n: located(part, path.parent) if n in LOCATED else part for n, part in data.items()}
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except (IsADirectoryError, PermissionError) as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None


def changed(data: Table, overrides: Iterable[str]) -> dict[str, Plain]:
    """A copy of the data with `a.b=value` set; what stands right of = is TOML, or a bare string."""
    out: dict[str, Plain] = _copy(data)
    for override in overrides:
        path, equals, text = override.partition("=")
        keys = path.strip().split(".")
        require(
            bool(equals) and all(keys),
            f"{override!r} is not a change to the spec: write key=value, such as rule.lr=0.01",
        )
        _put(out, keys, parsed(text.strip()), override)
    return out


def with_value(data: Table, path: str, value: Plain) -> dict[str, Plain]:
    """A copy of the data with what stands at a dotted path set to plain data."""
    out: dict[str, Plain] = _copy(data)
    _put(out, path.split("."), _copy(value), path)
    return out


def _put(data: dict[str, Plain], keys: list[str], value: Plain, said: str) -> None:
    inside = data
    for depth, key in enumerate(keys[:-1]):
        below = inside.setdefault(key, {})
        if depth == 0 and key in SECTIONS and isinstance(below, str):
            below = inside[key] = {"name": below}
        where = ".".join(keys[: depth + 1])
        require(
            isinstance(below, dict),
            f"{said!r}: {where} is {below!r} in the spec, not a table, "
            f"so nothing can be set inside it",
        )
        inside = below
    inside[keys[-1]] = value


def with_new_keys(data: Plain) -> Plain:
    """A spec as this version writes it: in 0.1 `schedule` named learning rates, and [rule] said
    clip_norm."""
    return clipping_in_work(_rates_by_rate(data)) if isinstance(data, Mapping) else data


def clipping_in_work(data: Table, tell: bool = True) -> dict[str, Plain]:
    """A spec whose [work] says clip_norm, where [rule] does. Only `gradient` takes it over: other
    works are newer than that."""
    rule, work = data.get("rule"), data.get("work", "gradient")
    if not isinstance(rule, Mapping) or "clip_norm" not in rule or _takes_clip_norm(rule):
        return dict(data)
    said = f"[rule] clip_norm = {rule['clip_norm']} is now [work] clip_norm"
    work = {"name": work} if isinstance(work, str) else work
    clip_norm = rule["clip_norm"]
    if isinstance(work, Mapping):
        require(
            work.get("name") == "gradient" and work.get("clip_norm", clip_norm) == clip_norm,
            f"{said}, and [work] is {dict(work)}: leave it out of [rule], and say it there",
        )
        work = {**work, "clip_norm": clip_norm}
    if tell:
        warnings.warn(said, FutureWarning, stacklevel=3)
    rest = {name: value for name, value in rule.items() if name != "clip_norm"}
    return {**data, "rule": rest, "work": work}


def _takes_clip_norm(rule: Table) -> bool:
    """Whether it is a rule of the user's own with an argument of that name."""
    name = rule.get("name")
    own = own_name(name) if isinstance(name, str) else None
    return own is not None and "clip_norm" in parameters_of(factory(own, "rule.name"), "rule")[0]


def _rates_by_rate(data: Plain, path: str = "") -> Any:
    if not isinstance(data, Mapping):
        return data
    renamed = {}
    for name, value in data.items():
        new = name
        if name == "schedule" and path.startswith("rule.lr"):
            new = "rate"
            warnings.warn(f"{path}: the key schedule is now rate", FutureWarning, stacklevel=2)
        renamed[new] = _rates_by_rate(value, join(path, name))
    return renamed


def differences(one: Table, other: Table, path: str = "") -> list[str]:
    """The dotted keys at which two specs differ."""
    out: list[str] = []
    for name in sorted({*one, *other}):
        a, b = one.get(name), other.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            out += differences(a, b, join(path, name))
        elif a != b:
            out.append(join(path, name))
    return out


def parsed(text: str) -> Plain:
    """What stands right of an =: TOML, or else a bare string."""
    try:
        read = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return read["value"] if len(read) == 1 else text


def _copy(data: Plain) -> Any:
    if isinstance(data, Mapping):
        return {key: _copy(value) for key, value in data.items()}
    return [_copy(value) for value in data] if isinstance(data, list) else data
