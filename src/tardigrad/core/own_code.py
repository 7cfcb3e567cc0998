"""Code of the user's own by name: "FILE.py:NAME" or "PACKAGE.MODULE:NAME".

A file is executed as a module of its own, so that no other module's name is in its way, and again
when its text or that of a file it imports has changed. Its folder is where its imports are looked
for, after everything that is installed.
"""

import ast
import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from tardigrad.core.checks import nearest, require
from tardigrad.core.imported_files import PACKAGE, SourceFile, is_library, reached

SUFFIX = ".py"
WRITE = '"FILE.py:NAME" or "PACKAGE.MODULE:NAME"'


class OwnName(NamedTuple):
    """Where a factory is, and what it is called there."""

    source: str
    """A file, or a module's dotted name."""
    factory: str

    @property
    def is_file(self) -> bool:
        return self.source.endswith(SUFFIX)

    def __str__(self) -> str:
        return f"{self.source}:{self.factory}"


class _Loaded(NamedTuple):
    module: ModuleType
    digests: dict[Path, str]
    """Of the file and of all that it imports, as they were executed."""


_files: dict[Path, _Loaded] = {}
"""By the file that was named."""
_found: set[Path] = set()
"""The user's own files that modules which were named are made of."""


def own_name(text: str) -> OwnName | None:
    """What a text names of the user's own; None where it cannot mean that."""
    source, _, factory = text.rpartition(":")
    if text.endswith(SUFFIX):  # the name is still to be said
        return OwnName(text, "")
    if source.endswith(SUFFIX):
        return OwnName(source, factory)
    words = [*source.split("."), factory]
    return OwnName(source, factory) if all(word.isidentifier() for word in words) else None


def located(data: Any, folder: Path) -> Any:
    """Plain data in which every "FILE.py:NAME" has its file's whole path, from `folder`."""
    if isinstance(data, Mapping):
        return {key: located(value, folder) for key, value in data.items()}
    if isinstance(data, list):
        return [located(value, folder) for value in data]
    own = own_name(data) if isinstance(data, str) and ":" in data else None
    if own is None or not own.is_file:
        return data
    return str(own._replace(source=str(_absolute(folder / Path(own.source).expanduser()))))


def brief(name: str) -> str:
    """A name for tables and titles: of a file without its folders."""
    own = own_name(name)
    return name.rpartition(os.sep)[2] if own is not None and own.is_file else name


def title_name(name: str) -> str:
    """A name as the words of a title."""
    return name.rpartition(":")[2].replace("_", " ")


def factory(own: OwnName, where: str) -> Callable[..., Any]:
    """What the name stands for; `where` is the key that says it."""
    said = f"{where} = {str(own)!r}"
    if own.is_file:
        _check_there(own, said)
    require(  # before anything of it is executed
        bool(own.factory),
        f"{where} = {own.source!r} does not say which function: write {own.source}:NAME."
        f"{_offered(_written_in(Path(own.source)))}",
    )
    module = _of_file(own, said) if own.is_file else _imported(own, said)
    offers = [name for name, _ in _factories(module)]
    known = _offered(offers)
    require(
        hasattr(module, own.factory),
        f"{said}: {own.source} has no {own.factory!r}{nearest(own.factory, offers) or '.'}{known}",
    )
    found: Callable[..., Any] = getattr(module, own.factory)
    require(
        callable(found),
        f"{said} is {_a(type(found).__name__)}, which cannot be called: name a function that "
        "returns it, or a class",
    )
    return found


def raised(error: BaseException) -> str:
    """An error of the user's code in one line: what, and where in the user's files."""
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    told = ": ".join(filter(None, [type(error).__name__, " ".join(text.split())]))
    if isinstance(error, SyntaxError) and error.filename:
        return f"{told} ({Path(error.filename).name}, line {error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if is_own_file(Path(frame.filename))]
    return f"{told} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else told


def is_own(part: object) -> bool:
    """Whether a function or class is not of this package."""
    return str(getattr(part, "__module__", "")).partition(".")[0] != PACKAGE.name


def own_modules() -> list[ModuleType]:
    """The modules that were loaded by name, and those of the user's own that they import."""
    files = _found.union(*(loaded.digests for loaded in _files.values()))
    if not files:
        return []
    return [module for file, module in _with_files() if file in files]


def _check_there(own: OwnName, said: str) -> None:
    file = _absolute(Path(own.source))
    if not file.is_file():
        beside = [str(path.name) for path in file.parent.glob(f"*{SUFFIX}")]
        in_folder = nearest(file.name, beside) if file.parent.is_dir() else ""
        raise ValueError(
            f"{said}: there is no file {file}{in_folder or '.'} Paths in a spec start at its own "
            "folder, those in a command at the working folder"
        )


def _of_file(own: OwnName, said: str) -> ModuleType:
    file = _absolute(Path(own.source))
    source = _source(_module_name(file), file)
    digests = {
        s.file.resolve(): hashlib.sha256(s.file.read_bytes()).hexdigest()
        for s in reached([source])
        if is_own_file(s.file)
    }
    loaded = _files.get(file)
    if loaded is not None and loaded.digests == digests:
        return loaded.module
    if loaded is not None:
        _forget(loaded.digests)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    module = _executed(source, said)
    for other in reached([source]):
        _check_same_file(other, file, said)
    _files[file] = _Loaded(module, digests)
    return module


def _executed(source: SourceFile, said: str) -> ModuleType:
    loader = SourceFileLoader(source.module, str(source.file))
    spec = spec_from_file_location(source.module, source.file, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    sys.modules[source.module] = module  # where dataclasses look for it
    try:
        # Compiled here: a cached file is taken for new where it was changed within a second.
        code = loader.source_to_code(source.file.read_bytes(), str(source.file))
        exec(code, vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[source.module]
        raise ValueError(_failed(said, source.file, error)) from error
    return module


def _imported(own: OwnName, said: str) -> ModuleType:
    here = os.getcwd()
    if here not in sys.path:  # as `python -m` has it, but after what is installed
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(own.source)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{own.source}.".startswith(f"{error.name}."):
            raise ValueError(
                f"{said}: there is no module {error.name} in {here} or installed; code in a file "
                f"is named by it: {own.source.replace('.', '/')}.py:{own.factory}"
            ) from error
        raise ValueError(_failed(said, own.source, error)) from error
    except (Exception, SystemExit) as error:
        raise ValueError(_failed(said, own.source, error)) from error
    file = Path(getattr(module, "__file__", None) or "").resolve()
    if is_own_file(file):
        depth = own.source.count(".") + (file.name == "__init__.py")
        sources = reached([SourceFile(own.source, file, file.parents[depth])])
        _found.update(source.file.resolve() for source in sources if is_own_file(source.file))
    return module


def _failed(said: str, what: object, error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return (
            f"{said}: {what} ends the program when it is imported ({raised(error)}): put what only "
            'a script does under if __name__ == "__main__":'
        )
    return f"{said}: importing {what} failed: {raised(error)}"


def _check_same_file(source: SourceFile, wanted_by: Path, said: str) -> None:
    """A module is loaded once; another file of the same name would silently be used instead."""
    module = sys.modules.get(source.module)
    file = getattr(module, "__file__", None)
    if file is None or source.module.partition(".")[0] == PACKAGE.name:
        return
    require(
        Path(file).resolve() == source.file.resolve(),
        f"{said}: {wanted_by.name} imports {source.module} from {source.file.parent}, but there is "
        f"another in {file}: rename one of them",
    )


def _forget(files: Mapping[Path, str]) -> None:
    """So that they are executed anew."""
    for file, module in _with_files():
        if file in files:
            del sys.modules[module.__name__]
    importlib.invalidate_caches()


def _with_files() -> list[tuple[Path, ModuleType]]:
    """Every module that there is and its file."""
    modules = [(getattr(module, "__file__", None), module) for module in sys.modules.values()]
    return [(_resolved(file), module) for file, module in modules if file]


@cache
def _resolved(file: str) -> Path:
    """Remembered: there are thousands of modules, and to look for all takes tenths of a second."""
    return Path(file).resolve()


def _factories(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The functions and classes that the module itself defines."""
    for name, value in vars(module).items():
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__:
            yield name, value


def _written_in(file: Path) -> list[str]:
    """The functions and classes that a file's text defines; nothing is executed for it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    defined = (ast.FunctionDef, ast.ClassDef)
    names = (node.name for node in tree.body if isinstance(node, defined))
    return [name for name in names if not name.startswith("_")]


def _offered(names: Sequence[str]) -> str:
    return f" It has {', '.join(names)}" if names else " It has no function or class of its own"


def _source(module: str, file: Path) -> SourceFile:
    return SourceFile(module, file, file.parent)


def _module_name(file: Path) -> str:
    mark = hashlib.sha256(str(file).encode()).hexdigest()[:8]
    return f"{file.stem.replace('.', '_')}_{mark}"


def is_own_file(file: Path) -> bool:
    """Whether a file is the user's: there, not of this package and not of an installed one."""
    path = file.resolve()
    return path.is_file() and not is_library(path) and not path.is_relative_to(PACKAGE)


def _absolute(path: Path) -> Path:
    return Path(os.path.abspath(path))


def _a(word: str) -> str:
    return f"{'an' if word[:1].lower() in 'aeiou' else 'a'} {word}"
