"""The user's own files that names of code lead to, found without executing any of them.

What a name stands for may depend on the working folder and on what Python has on its path; this
says which files it would be, here and now.
"""

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from tardigrad.core.imported_files import SourceFile, reached
from tardigrad.core.own_code import SUFFIX, OwnName, is_own_file, own_name


def named_files(names: Iterable[str]) -> dict[Path, str]:
    """The digest of every file that would be executed for these names, with all that those files
    import; installed packages are left out."""
    owns = [own for own in map(own_name, names) if own is not None]
    sources = [source for own in owns for source in _sources(own) if is_own_file(source.file)]
    return {
        source.file.resolve(): hashlib.sha256(source.file.read_bytes()).hexdigest()
        for source in reached(sources)
        if is_own_file(source.file)
    }


def _sources(own: OwnName) -> Iterator[SourceFile]:
    if own.is_file:
        file = Path(os.path.abspath(own.source))
        yield SourceFile(file.stem, file, file.parent)
        return
    module, path = "", [*sys.path, os.getcwd()]  # as `import` is given it for such a name
    for word in own.source.split("."):
        module = f"{module}.{word}" if module else word
        found = _found(module, path)
        if found is None:
            return
        if found.origin is not None and found.origin.endswith(SUFFIX):
            file = Path(found.origin).resolve()
            depth = module.count(".") + (file.name == "__init__.py")
            yield SourceFile(module, file, file.parents[depth])
        path = list(found.submodule_search_locations or [])


def _found(module: str, path: list[str]) -> ModuleSpec | None:
    """What importing it would execute. `importlib.util.find_spec` would import the package that it
    is in."""
    loaded: ModuleSpec | None = getattr(sys.modules.get(module), "__spec__", None)
    if loaded is not None:
        return loaded
    found = (finder.find_spec(module, path) for finder in sys.meta_path)
    return next((spec for spec in found if spec is not None), None)
