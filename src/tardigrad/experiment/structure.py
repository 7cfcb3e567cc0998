"""Plain data as typed arguments: every value checked, every error naming its path in the file.

What a part of a spec may hold is what the function or dataclass behind it takes: its signature and
type hints are the only description there is.
"""

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from tardigrad.core.checks import nearest, number, require
from tardigrad.core.own_code import WRITE, factory, is_own, own_name, raised

Plain = Any
"""What TOML can say: numbers, strings, truth values, lists and tables."""


class Registry(NamedTuple):
    """Named makers of one kind of thing; `key` is where a table says which.

    A maker of the user's own is named by where it is; what it returns is checked against `makes`.
    """

    kind: str
    makers: Mapping[str, Callable[..., Any]]
    makes: type
    key: str = "name"

    def check(self, path: str, maker: Callable[..., Any], made: Any) -> None:
        """Refuse what is of another kind."""
        lacks = _lacks(made, self.makes)
        require(
            not lacks,
            f"[{path}] {getattr(maker, '__name__', maker)} returned {_short(made)}, which is no "
            f"{self.kind} ({lacks}): return a tardigrad.{self.makes.__name__}",
        )


class Structure:
    """Builds objects from plain data.

    Args:
        registries: by the type that a hint asks for, who can make it.
    """

    def __init__(self, registries: Mapping[type, Registry]) -> None:
        self.registries = registries

    def named(
        self,
        registry: Registry,
        path: str,
        data: Plain,
        fill: Mapping[str, Any] | None = None,
    ) -> Any:
        """The thing that a table such as {name = "sgd", lr = 0.1}, or a bare name, asks for."""
        maker, args = self.choose(registry, path, data)
        made = self.call(maker, path, args, fill)
        registry.check(path, maker, made)
        return made

    def choose(
        self, registry: Registry, path: str, data: Plain
    ) -> tuple[Callable[..., Any], dict[str, Plain]]:
        """The maker that a table names, and the arguments in it."""
        args = {registry.key: data} if isinstance(data, str) else dict(table(path, data))
        known = list(registry.makers)
        require(
            registry.key in args,
            f"{path} does not say which {registry.kind}: "
            f'add {registry.key} = "…", one of {", ".join(known)}',
        )
        name = args.pop(registry.key)
        own = own_name(name) if isinstance(name, str) and name not in registry.makers else None
        if own is not None:
            return factory(own, f"{path}.{registry.key}"), args
        require(
            isinstance(name, str) and name in registry.makers,
            f"{path}.{registry.key}: there is no {registry.kind} "
            f"{among(name, known)} Known: {', '.join(known)}; your own as {WRITE}",
        )
        return registry.makers[name], args

    def call(
        self,
        maker: Callable[..., Any],
        path: str,
        args: Mapping[str, Plain],
        fill: Mapping[str, Any] | None = None,
        also: Sequence[str] = (),
    ) -> Any:
        """maker(**args); arguments named in `fill` that the file leaves out come from there.

        `also` are keys that the caller has taken out of `args` itself: messages offer them too.
        """
        typed = self.arguments(maker, path, args, fill, also)
        try:
            return maker(**typed)
        except ValueError as error:
            raise ValueError(f"[{path}] {error}") from error
        except Exception as error:
            if not is_own(maker):
                raise
            name = getattr(maker, "__name__", maker)
            raise ValueError(f"[{path}] {name} failed: {raised(error)}") from error

    def arguments(
        self,
        maker: Callable[..., Any],
        path: str,
        args: Mapping[str, Plain],
        fill: Mapping[str, Any] | None = None,
        also: Sequence[str] = (),
    ) -> dict[str, Any]:
        """`args` checked against the maker's signature, with types as it wants them."""
        fill = fill or {}
        parameters, takes_any = parameters_of(maker, path)
        hints = hints_of(maker)
        known = [*parameters, *also]
        for name in args:
            require(
                name in parameters or takes_any,
                f"{f'[{path}]' if path else 'the spec'} has no key {among(name, known)} "
                f"It takes {', '.join(known) or 'nothing'}",
            )
        typed = {
            name: self.value(join(path, name), value, hints[name], fill)
            if name in hints
            else self._untyped(join(path, name), value, fill)
            for name, value in args.items()
        }
        for name, parameter in parameters.items():
            if name in typed:
                continue
            if name in fill:
                typed[name] = fill[name]
            else:
                require(
                    parameter.default is not parameter.empty,
                    f"{join(path, name)} is missing: add {name} = …"
                    + (f" under [{path}]" if path else ""),
                )
        return typed

    def value(
        self, path: str, data: Plain, hint: Any, fill: Mapping[str, Any] | None = None
    ) -> Any:
        """`data` as the type that `hint` asks for."""
        origin, inner = get_origin(hint), get_args(hint)
        if hint is Any:
            return data
        if origin in (Union, types.UnionType):
            return self._union(path, data, inner, fill)
        if origin is Literal:
            known = ", ".join(repr(choice) for choice in inner)
            require(
                data in inner, f"{path} must be one of {known}, got {data!r}{nearest(data, inner)}"
            )
            return data
        if hint in self.registries:
            return self.named(self.registries[hint], path, data, fill)
        if origin in (tuple, list, Sequence):
            return self._sequence(path, data, hint, fill)
        if origin in (dict, Mapping):
            items = table(path, data).items()
            return {k: self.value(f"{path}.{k}", v, inner[1], fill) for k, v in items}
        if hint in _SCALARS:
            return _scalar(path, data, hint)
        require(
            hasattr(hint, "__dataclass_fields__"),
            f"{path} cannot be given in a file: it takes a Python object, "
            "so use tardigrad from Python for it",
        )
        return self.call(hint, path, table(path, data), fill)

    def _untyped(self, path: str, data: Plain, fill: Mapping[str, Any] | None) -> Any:
        """As it stands in the file, for whoever does not say what it takes; but for a table that
        can only be a rate."""
        for registry in self.registries.values():
            if registry.key != "name" and isinstance(data, dict) and registry.key in data:
                return self.named(registry, path, data, fill)
        return data

    def _union(
        self, path: str, data: Plain, members: tuple[Any, ...], fill: Mapping[str, Any] | None
    ) -> Any:
        """The only member that data of this kind can mean, or else the first that takes it."""
        members = tuple(m for m in members if get_origin(m) is not Callable)  # a file has none
        fitting = [m for m in members if m is not type(None) and self._fits(data, m)]
        require(
            bool(fitting),
            f"{path} must be {' or '.join(self._says(m) for m in members)}, got {data!r}",
        )
        for member in fitting[:-1]:
            try:
                return self.value(path, data, member, fill)
            except ValueError:
                continue
        return self.value(path, data, fitting[-1], fill)

    def _fits(self, data: Plain, hint: Any) -> bool:
        """Whether data of this TOML kind could mean this type at all."""
        if hint in _SCALARS:
            _, accepted = _SCALARS[hint]
            return isinstance(data, accepted) and not (isinstance(data, bool) and hint is not bool)
        if get_origin(hint) is Literal:
            return isinstance(data, tuple({type(choice) for choice in get_args(hint)}))
        if get_origin(hint) in (tuple, list, Sequence):
            return isinstance(data, list)
        if hint in self.registries and self.registries[hint].key == "name":
            return isinstance(data, dict | str)
        table_like = hint in self.registries or hasattr(hint, "__dataclass_fields__")
        return isinstance(data, dict) and (table_like or get_origin(hint) in (dict, Mapping))

    def _says(self, hint: Any) -> str:
        if hint in _SCALARS:
            return _SCALARS[hint][0]
        if hint in self.registries:
            registry = self.registries[hint]
            return f'a table such as {{{registry.key} = "{next(iter(registry.makers))}", …}}'
        if hint is type(None):
            return "left out"
        return "a list" if get_origin(hint) in (tuple, list, Sequence) else "a table"

    def _sequence(
        self, path: str, data: Plain, hint: Any, fill: Mapping[str, Any] | None
    ) -> list[Any] | tuple[Any, ...]:
        require(isinstance(data, list), f"{path} must be a list, got {data!r}")
        inner = get_args(hint)
        fixed = get_origin(hint) is tuple and inner[-1] is not Ellipsis
        if fixed:
            require(
                len(data) == len(inner),
                f"{path} must be a list of {len(inner)} values, got {len(data)}: {data!r}",
            )
        hints = inner if fixed else [inner[0]] * len(data)
        out = [
            self.value(f"{path}[{i}]", item, of, fill)
            for i, (item, of) in enumerate(zip(data, hints, strict=True))
        ]
        return out if get_origin(hint) is list else tuple(out)


_SCALARS: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    str: ("a string", (str,)),
    Path: ("a string", (str,)),
}
"""How each is called in messages, and which plain types it accepts."""


def _scalar(path: str, data: Plain, hint: Any) -> Any:
    says, accepted = _SCALARS[hint]
    good = isinstance(data, accepted) and not (isinstance(data, bool) and hint is not bool)
    require(good, f"{path} must be {says}, got {data!r}")
    if hint is float:
        return number(path, data) if isinstance(data, int) else data
    return data if hint in (bool, str) else hint(data)


def parameters_of(
    maker: Callable[..., Any], path: str
) -> tuple[dict[str, inspect.Parameter], bool]:
    """The maker's arguments that a file can give, and whether it takes any others (**rest)."""
    try:
        parameters = inspect.signature(maker).parameters.values()
    except (TypeError, ValueError):
        raise ValueError(
            f"[{path}] {maker!r} does not say what it takes: name a Python function that calls it"
        ) from None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for one in parameters:
        require(
            one.kind is not one.POSITIONAL_ONLY,
            f"[{path}] {one.name} cannot be given by name: take the / out of the arguments of "
            f"{getattr(maker, '__name__', maker)}",
        )
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return {one.name: one for one in parameters if one.kind in by_name}, takes_any


def hints_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """What its arguments say they are; nothing where that cannot be found out."""
    if isinstance(maker, functools.partial):
        return hints_of(maker.func)
    own_class = inspect.isclass(maker) and not hasattr(maker, "__dataclass_fields__")
    try:
        return get_type_hints(maker.__init__ if own_class else maker)
    except (NameError, TypeError, AttributeError):  # names that only type checkers import
        return {}


def _lacks(made: Any, kind: type) -> str:
    """Why it is not of this kind; a protocol is met by whoever has its members."""
    if not getattr(kind, "_is_protocol", False):
        return "" if isinstance(made, kind) else f"it is {type(made).__name__}"
    members = [*kind.__annotations__, *(n for n in vars(kind) if not n.startswith("_"))]
    missing = [name for name in members if not hasattr(made, name)]
    return f"it has no {', '.join(missing)}" if missing or isinstance(made, type) else ""


def _short(made: Any) -> str:
    text = repr(made)
    return text if len(text) <= 60 and "\n" not in text else f"something of {type(made).__name__}"


def table(path: str, data: Plain) -> Mapping[str, Plain]:
    require(isinstance(data, dict), f"{path} must be a table ([{path}]), got {data!r}")
    return dict(data)


def join(path: str, name: str) -> str:
    """A key's dotted path; the file itself has none."""
    return f"{path}.{name}" if path else name


def among(name: object, known: Iterable[str]) -> str:
    """A name that was not found, quoted, with the nearest that is known."""
    near = nearest(name, known)
    return f"{name!r}{near}" if near else f"{name!r}."
