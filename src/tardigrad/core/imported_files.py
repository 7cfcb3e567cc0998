"""Which source files a source file needs, read from its text: nothing is imported or executed.

A name that a package only passes on (`from tardigrad.rules import Sgd`) leads to the file that
defines it, not to all that the package holds.
"""

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
FOLLOWED = ("rules", "tasks", "policies", "links", "core.keys", "core.layout", "core.trees")
"""The rooms of this package that say what is computed; the others only arrange when."""
APART = ("rules.catalogue", "tasks.data", "tasks.checks")
"""Files in them that do not: what a catalogue made and what was loaded are looked at themselves,
and checks only refuse."""


@dataclass(frozen=True)
class SourceFile:
    """A module's file: `folder` / the module's dotted name as a path."""

    module: str
    file: Path
    folder: Path

    @property
    def name(self) -> str:
        """The same on any machine, wherever the code lies."""
        return self.file.relative_to(self.folder).as_posix()

    @property
    def is_package(self) -> bool:
        return self.file.name == "__init__.py"

    @cached_property
    def read(self) -> "Read":
        stat = self.file.stat()
        return _read(self.module, self.is_package, self.file, stat.st_mtime_ns, stat.st_size)

    def locate(self, module: str) -> "SourceFile | None":
        """The module as this file would import it: its own folder first; None for libraries."""
        if module.partition(".")[0] == PACKAGE.name:
            return _in(PACKAGE.parent, module)
        if module.partition(".")[0] in sys.stdlib_module_names:
            return None
        # This package may lie among the libraries itself: what lies beside it then is installed.
        beside = () if is_library(self.folder) else (self.folder,)
        for folder in (*beside, *own_folders()):
            found = _in(folder, module)
            if found is not None:
                return found
        return None

    def needs(self) -> Iterator["SourceFile"]:
        """The files that its imports lead to."""
        read = self.read
        for module, attribute in read.imported:
            yield from self._found(module, attribute)
        for first, *rest in read.chains:
            at = read.bound.get(first)
            if at is not None:
                yield from self._along(".".join(filter(None, at)), rest)

    def _found(self, module: str, attribute: str | None) -> Iterator["SourceFile"]:
        found = self.define(module, attribute)
        if found is not None and _counts(found):
            yield found

    def _along(self, module: str, attributes: list[str]) -> Iterator["SourceFile"]:
        """Where `package.module.name` is defined, through as many packages as it takes."""
        for attribute in attributes:
            at = self.locate(module)
            if at is None or not at.is_package:
                return
            if self.locate(f"{module}.{attribute}") is None or attribute in at.read.bound:
                yield from self._found(module, attribute)
                return
            module = f"{module}.{attribute}"
            yield from self._found(module, None)

    def define(self, module: str, attribute: str | None) -> "SourceFile | None":
        """The file that defines it; None for a package as such, whose names are asked for."""
        at = self.locate(module)
        if at is None or not at.is_package:
            return at
        if attribute is None:
            return None
        passed_on = at.read.bound.get(attribute)
        if passed_on is not None and passed_on != (module, attribute):
            return at.define(*passed_on)
        if self.locate(f"{module}.{attribute}") is not None:
            return self.define(f"{module}.{attribute}", None)
        return at


@dataclass(frozen=True)
class Read:
    """What the text of a file says about others."""

    imported: tuple[tuple[str, str | None], ...]
    """(module, name in it), None for the module itself; "*" is all of it."""
    bound: dict[str, tuple[str, str | None]]
    """What each imported name stands for."""
    chains: tuple[tuple[str, ...], ...]
    """`a.b.c` wherever it stands."""


def reached(sources: Iterable[SourceFile]) -> list[SourceFile]:
    """These files and all that they lead to, sorted by name."""
    _in.cache_clear()  # files come and go between two calls, and one asks for each many times
    found: dict[Path, SourceFile] = {}
    waiting = list(sources)
    while waiting:
        source = waiting.pop()
        if source.file not in found:
            found[source.file] = source
            waiting += source.needs()
    return sorted(found.values(), key=lambda source: source.name)


def own_folders() -> tuple[Path, ...]:
    """Where Python looks for modules that are neither its own nor installed."""
    return _own_folders(tuple(sys.path), Path.cwd())


@lru_cache(maxsize=8)
def _own_folders(entries: tuple[str, ...], here: Path) -> tuple[Path, ...]:
    folders = [(here / entry).resolve() for entry in entries]
    return tuple(folder for folder in folders if folder.is_dir() and not is_library(folder))


def is_library(path: Path) -> bool:
    """Whether it belongs to Python or to what is installed."""
    return any(path.is_relative_to(library) for library in _libraries())


@lru_cache
def _libraries() -> tuple[Path, ...]:
    paths = sysconfig.get_paths()
    return tuple(Path(paths[n]).resolve() for n in ("stdlib", "platstdlib", "purelib", "platlib"))


@lru_cache(maxsize=1024)
def _read(module: str, is_package: bool, file: Path, mtime_ns: int, size: int) -> Read:
    """Kept while the file is what it was, which its time and size tell."""
    imported: list[tuple[str, str | None]] = []
    bound: dict[str, tuple[str, str | None]] = {}
    chains = set()
    package = module if is_package else module.rpartition(".")[0]
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # its digest tells all that can be told
        return Read((), {}, ())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                imported.append((alias.name, None))
                first = alias.name.partition(".")[0]
                bound[alias.asname or first] = (alias.name if alias.asname else first, None)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: 1 - node.level or None]
                base = ".".join(filter(None, [*above, base]))
            for alias in node.names:
                imported.append((base, alias.name))
                bound[alias.asname or alias.name] = (base, alias.name)
        elif isinstance(node, ast.Attribute):
            chain = _chain(node)
            if chain:
                chains.add(chain)
    return Read(tuple(imported), bound, tuple(sorted(chains)))


def _chain(node: ast.expr) -> tuple[str, ...]:
    """("a", "b", "c") for a.b.c; () where something else comes first."""
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


@lru_cache(maxsize=4096)
def _in(folder: Path, module: str) -> SourceFile | None:
    path = folder.joinpath(*module.split("."))
    for file in (path / "__init__.py", path.with_name(path.name + ".py")):
        if file.is_file():
            return SourceFile(module, file, folder)
    return None


def _counts(source: SourceFile) -> bool:
    """Whether a file says what is computed: a user's always, of this package those FOLLOWED."""
    package, _, inner = source.module.partition(".")
    if package != PACKAGE.name:
        return True
    return any(f"{inner}.".startswith(f"{name}.") for name in FOLLOWED) and not inner.startswith(
        APART
    )
