"""Which code that a run's folder names may be executed: what was run from this account before.

A folder is data, and may come from anybody. Its `spec.toml` may name code, though, which is
executed when the run is loaded or replayed. Whoever starts a run has chosen its code; so the digest
of its spec is noted in the account's own folder, and a spec that is not noted there is refused
unless the user says that it may be trusted.
"""

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tardigrad.core.checks import require
from tardigrad.core.own_code import own_name
from tardigrad.experiment.spec import Spec
from tardigrad.recording.folder import SPEC


def note_code(spec: Spec) -> None:
    """This account runs it, and may load it again."""
    if not list(_named(spec.data())):
        return
    place = _note(spec.toml())
    if place is not None:
        with suppress(OSError):  # a home that cannot be written to: the user is asked then
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()


def trusted_spec(folder: Path, trust_code: bool) -> Spec:
    """The spec in a run's folder; refused where it names code that was not run from here."""
    file = folder / SPEC
    text = file.read_text(encoding="utf-8")
    named = list(dict.fromkeys(_named(tomllib.loads(text))))
    place = _note(text)
    require(
        trust_code or not named or (place is not None and place.exists()),
        f"{file} names code that would be executed ({', '.join(named)}), and this account has not "
        "run it before: read it, and if you trust whoever wrote it, load with trust_code=True "
        "(--trust-code)",
    )
    return Spec.load(file)


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
