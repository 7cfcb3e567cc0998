"""Code that a run's folder names is executed where this account has run it, or is told to trust."""

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import tardigrad as tg
from tardigrad.experiment import run as run_spec
from tests.experiment.own_files import RULE, forgotten, spec_of, write

MARKED = (
    RULE
    + """
from pathlib import Path
Path("executed").touch()
"""
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):
        yield


@pytest.fixture
def folder() -> Path:
    """Of a run with a rule of one's own, of which nothing is loaded any more."""
    write("rule.py", MARKED)
    with forgotten(Path.cwd()):
        run_spec(spec_of(rule={"name": f"{Path.cwd()}/rule.py:mine", "lr": 0.1}), "run")
    Path("executed").unlink()
    return Path("run")


def of_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / "another"))


def test_what_was_run_from_here_is_loaded_and_replayed(folder: Path) -> None:
    run = tg.Run.load(folder)
    assert tg.replay(run).difference is None
    assert tg.replay(folder).difference is None


def test_a_copy_of_it_too(folder: Path) -> None:
    shutil.copytree(folder, "elsewhere")
    assert tg.replay("elsewhere").difference is None


@pytest.mark.parametrize("read", [tg.Run.load, tg.replay])
def test_what_another_account_ran_is_refused_before_it_is_executed(
    read: Callable[..., object], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_another_account(monkeypatch)
    with pytest.raises(ValueError, match=r"rule\.py:mine\), and this account.*trust_code=True"):
        read(folder)
    assert not Path("executed").exists()
    read(folder, trust_code=True)


def test_what_was_changed_since_is_refused(folder: Path) -> None:
    file = folder / "spec.toml"
    text = file.read_text()
    changed = re.sub(r'name = ".*rule.py:mine"', 'name = "os:system"', text)
    assert changed != text
    file.write_text(changed)
    with pytest.raises(ValueError, match=r"\(os:system\)"):
        tg.Run.load(folder)


def other_name(file: Path, key: str) -> str:
    """The spec of a run whose `key` names a file and nothing in it."""
    text = file.read_text()
    if key == "rate":
        return text.replace("lr = 0.1", f'lr = {{rate = "{Path.cwd()}/evil.py"}}')
    if key == "log":
        return text + f'[[log]]\nname = "{Path.cwd()}/evil.py"\n'
    if key == "relative":
        return re.sub(r'name = ".*rule.py:mine"', 'name = "evil.py"', text)
    rest = re.sub(rf"\[{key}\]\n(.+\n)*", "", text)
    return rest + f'[{key}]\nname = "{Path.cwd()}/evil.py"\nlr = 0.1\n'


@pytest.mark.parametrize("key", ["rule", "policy", "work", "task", "log", "rate", "relative"])
@pytest.mark.parametrize("read", [tg.Run.load, tg.replay])
def test_a_file_without_a_name_in_it_is_refused_before_it_is_executed(
    read: Callable[..., object], key: str, folder: Path
) -> None:
    write("evil.py", "from pathlib import Path\nPath('executed').touch()\ndef f(): ...\n")
    file = folder / "spec.toml"
    file.write_text(other_name(file, key))
    with pytest.raises(ValueError, match=r"evil\.py.* and this account.*trust_code=True"):
        read(folder)
    with pytest.raises(ValueError, match=r"does not say which function.*It has f"):
        read(folder, trust_code=True)
    assert not Path("executed").exists()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder beside that of a run with a module's name in its spec; from now on one is there."""
    write("sub/own_module.py", RULE)
    write("other/own_module.py", MARKED)
    monkeypatch.chdir("sub")
    with forgotten(tmp_path):
        run_spec(spec_of(rule={"name": "own_module:mine", "lr": 0.1}), "../run")
        assert tg.replay("../run").difference is None
    monkeypatch.chdir(tmp_path / "other")
    return Path("../run")


def test_another_file_of_a_modules_name_is_not_trusted(elsewhere: Path) -> None:
    with pytest.raises(ValueError, match=r"but .*/other/own_module.py: .*trust_code=True"):
        tg.replay(elsewhere)
    assert not Path("executed").exists()
    with pytest.raises(ValueError, match=r"own_module.py has changed: .*--force"):
        tg.replay(elsewhere, trust_code=True)
    assert tg.replay(elsewhere, trust_code=True, force=True).difference is None


def test_what_it_imports_is_not_trusted_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sub", "other"):
        write(f"{name}/own_package/__init__.py", "")
        write(f"{name}/own_package/rules.py", RULE, "from own_package import helper\n")
        write(f"{name}/own_package/helper.py", f"FROM = {name!r}\n")
    monkeypatch.chdir("sub")
    with forgotten(tmp_path):
        run_spec(spec_of(rule={"name": "own_package.rules:mine", "lr": 0.1}), "../run")
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(ValueError, match=r"but \S*/other/own_package/helper.py: "):
        tg.Run.load("../run")
    monkeypatch.chdir(tmp_path / "sub")
    Path("own_package/helper.py").write_text("FROM = 'an edit of the same file'\n")
    assert tg.replay("../run", force=True).difference is None


def test_the_same_file_elsewhere_is_trusted(elsewhere: Path) -> None:
    shutil.copy("../sub/own_module.py", "own_module.py")
    assert tg.replay(elsewhere).difference is None


def test_code_that_is_not_used_any_more_is_told(elsewhere: Path) -> None:
    write("own_module.py", "import tardigrad as tg\ndef mine(lr):\n    return tg.rules.sgd(lr)\n")
    with pytest.raises(ValueError, match=r"own_module.py is not used now.*--force"):
        tg.replay(elsewhere, trust_code=True)


def test_a_run_of_ours_alone_is_anybodys_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    run_spec(spec_of(), "plain")
    of_another_account(monkeypatch)
    assert tg.replay("plain").difference is None
    assert not Path("another").exists()


def test_a_home_that_cannot_be_written_to_asks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", "file")
    run_spec(tg.Spec.load(folder / "spec.toml"), "again")
    with pytest.raises(ValueError, match="trust_code=True"):
        tg.Run.load("again")


def test_an_account_without_a_home_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", unknown)
    assert run_spec(tg.Spec.load(folder / "spec.toml"), "again").schedule.updates == 12
    with pytest.raises(ValueError, match="trust_code=True"):
        tg.Run.load("again")
    assert tg.replay("again", trust_code=True).difference is None
