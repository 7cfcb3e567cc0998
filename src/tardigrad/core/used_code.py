"""The code that a run used, file by file, so that a change is told by the file's name.

What counts is what the run's own objects lead to: the classes and functions that the rule, the
task and the policy are made of, and what those files import in their turn, from this package or
from the user's own files. Installed libraries count by their version.
"""

import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from tardigrad.core.imported_files import PACKAGE, SourceFile, is_library, reached

UNKNOWN = "unknown"
"""Instead of a digest, where there is no source to be found."""
_PLAIN = (str, bytes, int, float, complex, type(None), Tensor, types.ModuleType)


def used_code(*objects: object) -> dict[str, str]:
    """The digest of every file that the objects lead to, by its name, such as
    "tardigrad/rules/gap.py" or "my_rule.py"; and the version of each library they come from."""
    sources: dict[Path, SourceFile] = {}
    out: dict[str, str] = {}
    for part in {id(part): part for value in objects for part in _code_in(value, set())}.values():
        source = _source_of(part)
        if source is not None:
            sources[source.file] = source
        else:
            out |= _without_file(part)
    texts: dict[str, list[bytes]] = {}
    for source in reached(sources.values()):
        texts.setdefault(source.name, []).append(source.file.read_bytes())
    # Two files of one name in different folders are told together.
    out |= {name: _digest(b"\0".join(sorted(found))) for name, found in texts.items()}
    return dict(sorted(out.items()))


def changes(recorded: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """What differs, a phrase each; nothing where all is the same."""
    out = []
    for name in sorted({*recorded, *here}):
        before, now = recorded.get(name), here.get(name)
        if UNKNOWN in (before, now):
            out.append(f"{name} has no source file to compare")
        elif before is None:
            out.append(f"{name} was not used then")
        elif now is None:
            out.append(f"{name} is not used now")
        elif before != now:
            out.append(f"{name} has changed")
    return out


def _code_in(value: object, seen: set[int]) -> Iterator[Any]:
    """The classes and functions that a value is made of; fields, closures and items included."""
    if isinstance(value, _PLAIN) or id(value) in seen:
        return
    seen.add(id(value))
    inside: list[object] = []
    if isinstance(value, type):
        yield from (base for base in value.__mro__ if not _is_builtin(base))
    elif isinstance(value, functools.partial):
        inside = [value.func, value.args, value.keywords]
    elif isinstance(value, types.MethodType):
        inside = [value.__func__, value.__self__]
    elif isinstance(value, types.FunctionType):
        yield value
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        inside = [*cells, value.__defaults__, value.__kwdefaults__]
    elif isinstance(value, Mapping):
        inside = [type(value), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        inside = [type(value), *value]
    else:
        inside = [type(value)]
        if isinstance(value, nn.Module) or _source_of(type(value)) is not None:
            inside += [getattr(value, "__dict__", None)]
            slots = [s for base in type(value).__mro__ for s in getattr(base, "__slots__", ())]
            inside += [getattr(value, name, None) for name in slots if name != "__dict__"]
    for part in inside:
        yield from _code_in(part, seen)


def _is_filled(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that the function will only get later
        return False


def _is_builtin(part: Any) -> bool:
    return str(part.__module__).partition(".")[0] in sys.stdlib_module_names


def _source_of(part: Any) -> SourceFile | None:
    """The file of a class or function of this package or of the user; None for libraries."""
    module = str(part.__module__)
    if module.partition(".")[0] == PACKAGE.name:
        file = Path(sys.modules[module].__file__ or "")
        return SourceFile(module, file, PACKAGE.parent)
    if _is_builtin(part) and module != "__main__":
        return None
    found = _file_of(part)
    if found is None or is_library(found):
        return None
    if module == "__main__":  # a script: its file has the name by which others import it
        return SourceFile(found.stem, found, found.parent)
    depth = module.count(".") + (found.name == "__init__.py")
    return SourceFile(module, found, found.parents[depth])


def _file_of(part: Any) -> Path | None:
    module = sys.modules.get(part.__module__)
    file = getattr(module, "__file__", None)
    if file is None:  # loaded by hand, or typed in
        made = part if isinstance(part, types.FunctionType) else _a_method(part)
        file = made.__code__.co_filename if made is not None else None
    path = Path(file).resolve() if file else None
    return path if path is not None and path.is_file() and path.suffix == ".py" else None


def _a_method(part: Any) -> types.FunctionType | None:
    return next((v for v in vars(part).values() if isinstance(v, types.FunctionType)), None)


def _without_file(part: Any) -> dict[str, str]:
    """A library by its version; what was typed in by its text, where Python has kept it."""
    package = str(part.__module__).partition(".")[0]
    if package in sys.stdlib_module_names and package != "__main__":
        return {}
    if package != "__main__":
        try:
            return {package: _version(package)}
        except PackageNotFoundError:
            pass
    name = f"{part.__module__}.{part.__qualname__}"
    try:
        return {name: _digest(inspect.getsource(part).encode())}
    except (OSError, TypeError):
        return {name: UNKNOWN}


_version = functools.cache(version)


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]
