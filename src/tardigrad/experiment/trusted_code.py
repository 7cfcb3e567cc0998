"""Which code that a run's folder names may be executed: what was run from this account before.

A folder is data, and may come from anybody. Its `spec.toml` may name code, though, which is
executed when the run is loaded or replayed. Whoever starts a run has chosen its code; so the digest
of its spec is noted in the account's own folder, with the files that its names stood for, and a
spec that is not noted there is refused unless the user says that it may be trusted. So is one whose
names stand for other files here: a module's name means another file in another folder.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.named_files import named_files
from tardigrad.core.own_code import own_name
from tardigrad.engine.result_files import write
from tardigrad.experiment.spec import Spec
from tardigrad.recording.folder import SPEC, RunFolder


def note_code(spec: Spec) -> None:
    """This account runs it, and may load it again."""
    named = list(_named(spec.data()))
    note = _note(spec.toml())
    if not named or note is None:
        return
    lines = _noted(note) or set()
    lines |= {f"{digest} {file}" for file, digest in named_files(named).items()}
    with suppress(OSError):  # a home that cannot be written to: the user is asked then
        note.parent.mkdir(parents=True, exist_ok=True)
        write(note, "\n".join(sorted(lines)))


def trusted_spec(folder: Path, trust_code: bool) -> Spec:
    """The spec in a run's folder; refused where it names code that was not run from here."""
    file = folder / SPEC
    named = list(dict.fromkeys(_named(RunFolder(folder).spec())))
    if named and not trust_code:
        _check_noted(file, file.read_text(encoding="utf-8"), named)
    return Spec.load(file)


def _check_noted(file: Path, text: str, named: list[str]) -> None:
    note = _note(text)
    lines = None if note is None else _noted(note)
    how = "read it, and if you trust whoever wrote it, load with trust_code=True (--trust-code)"
    require(
        lines is not None,
        f"{file} names code that would be executed ({', '.join(named)}), and this account has not "
        f"run it before: {how}",
    )
    # A file of the account's own may have been edited since: a replay tells that.
    known = {word for line in lines or () for word in line.split(" ", 1)}
    others = [str(f) for f, digest in named_files(named).items() if not {str(f), digest} & known]
    require(
        not others,
        f"{file} names code that would be executed ({', '.join(named)}), and from this folder that "
        f"is not what this account has run, but {', '.join(others)}: load it from the folder in "
        f"which it was run; or {how}",
    )


def _named(data: Any) -> Iterator[str]:
    """Every text in plain data that may name code."""
    if isinstance(data, Mapping):
        for value in data.values():
            yield from _named(value)
    elif isinstance(data, list):
        for value in data:
            yield from _named(value)
    elif isinstance(data, str) and own_name(data) is not None:
        yield data


def _note(text: str) -> Path | None:
    """Where it is noted that this account has run a spec; None for an account without a home."""
    said = os.environ.get("XDG_STATE_HOME")
    try:
        base = Path(said) if said else Path.home() / ".local" / "state"
    except RuntimeError:  # of an unknown user id, as containers have them
        return None
    return base / "tardigrad" / "code" / hashlib.sha256(text.encode()).hexdigest()


def _noted(note: Path) -> set[str] | None:
    """What a note says: a line for each file, its digest and its path; None: there is no note."""
    try:
        return set(note.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError):
        return None
