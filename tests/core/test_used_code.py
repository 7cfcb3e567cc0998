"""The code of a run: what its objects lead to, and nothing else, told by name."""

import functools
import importlib
import os
import statistics
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tardigrad as tg
from tardigrad.core.imported_files import SourceFile
from tardigrad.core.used_code import UNKNOWN, changes, used_code
from tardigrad.tasks import Data, Split, logistic_regression, quadratic

RULE = """
from dataclasses import dataclass

import tardigrad as tg
from tardigrad.rules import Correction, Nothing, Sgd, Signal

import {helper}
from {unused} import nothing


@dataclass(frozen=True)
class Halved(Correction[Nothing, Nothing]):
    def correct(self, theta, state, own, push, now, layout):
        return Signal({helper}.half(push.grad), push.grad), own


def halved(lr):
    return tg.Rule(lr, Sgd(0.9), Halved())


if __name__ == "__main__":
    tg.simulate(tg.tasks.quadratic(), halved(0.1), cluster=tg.Gamma(workers=2))
    tg.train(tg.tasks.quadratic(), tg.rules.adam(0.1))
"""
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(tg.__file__).parents[1])}
HELPER = "def half(x):\n    return x / 2\n"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's folder, with a rule of two files; what was imported from it is forgotten after."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    text = RULE.format(helper="own_helper", unused="nowhere_to_be_found")
    text = text.replace("from nowhere", "if False:\n    from nowhere")
    (tmp_path / "own_rule.py").write_text(text)
    (tmp_path / "own_helper.py").write_text(HELPER)
    (tmp_path / "own_other.py").write_text("x = 1\n")
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def the(name: str) -> Any:
    return importlib.import_module(name)


def test_a_rule_is_its_own_files_and_no_other_rules() -> None:
    found = set(used_code(tg.rules.gap_aware(0.1, momentum=0.9)))
    rules = {name for name in found if name.startswith("tardigrad/rules/")}
    own = ("gap", "parts", "rate_scales", "rates", "raw", "rule", "sgd")
    assert rules == {f"tardigrad/rules/{name}.py" for name in own}
    assert "tardigrad/core/layout.py" in found
    assert "tardigrad/rules/adam.py" in used_code(tg.rules.adam(0.1))
    rate = tg.rates.cosine(0.1, 100)
    assert used_code(tg.rules.gap_aware(rate, momentum=0.9)).keys() == found


def test_tasks_policies_and_links_are_looked_at_too() -> None:
    assert {"tardigrad/tasks/quadratic.py", "tardigrad/core/keys.py"} <= used_code(
        quadratic(3)
    ).keys()
    module = used_code(logistic_regression(train_size=20, validation=0))
    assert {"tardigrad/tasks/module.py", "tardigrad/tasks/sampling.py", "torch"} <= module.keys()
    assert "tardigrad/tasks/quadratic.py" not in module
    assert "tardigrad/policies/synchronous.py" in used_code(tg.Sync())
    assert "tardigrad/policies/synchronous.py" not in used_code(tg.Async())
    assert "tardigrad/links/budget.py" in used_code(tg.Budget(0.5))


def test_a_users_rule_is_its_file_and_what_that_imports(own: Path) -> None:
    """Not what its script calls when it is run: neither engines nor other rules."""
    found = used_code(the("own_rule").halved(0.1))
    inside = {name for name in found if name.startswith("tardigrad/")}
    assert found.keys() - inside == {"own_rule.py", "own_helper.py"}
    rules = {Path(name).name for name in inside if "/rules/" in name}
    always = {"parts.py", "rate_scales.py", "rates.py", "raw.py", "rule.py"}
    assert rules == {*always, "sgd.py"}
    assert not {name for name in inside if "/engine/" in name or "/runtime/" in name}


def test_a_change_is_told_by_the_files_name(own: Path) -> None:
    rule = the("own_rule").halved(0.1)
    before = used_code(rule)
    (own / "own_other.py").write_text("x = 2\n")
    (own / "own_new.py").write_text("y = 1\n")
    assert changes(before, used_code(rule)) == []
    (own / "own_helper.py").write_text(HELPER.replace("/ 2", "/ 3"))
    assert changes(before, used_code(rule)) == ["own_helper.py has changed"]
    (own / "own_helper.py").write_text("import own_new\n" + HELPER)
    assert changes(before, used_code(rule)) == [
        "own_helper.py has changed",
        "own_new.py was not used then",
    ]
    assert changes(used_code(rule), before)[1] == "own_new.py is not used now"


def test_a_file_is_looked_for_once_and_again_the_next_time(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every run asks, and rules import much in common."""
    asked = Counter[Path]()
    is_file = Path.is_file

    def counted(path: Path) -> bool:
        asked[path] += 1
        return is_file(path)

    monkeypatch.setattr(Path, "is_file", counted)
    rule = the("own_rule").halved(0.1)
    assert "nowhere_to_be_found.py" not in used_code(rule)
    assert max(asked.values()) <= 2  # as the file of an object, and as what another imports
    (own / "nowhere_to_be_found.py").write_text("nothing = 0\n")
    assert "nowhere_to_be_found.py" in used_code(rule)


def test_the_same_files_elsewhere_have_the_same_names(own: Path, tmp_path: Path) -> None:
    before = used_code(the("own_rule").halved(0.1))
    other = tmp_path / "elsewhere"
    other.mkdir()
    for name in ("own_rule.py", "own_helper.py"):
        (own / name).rename(other / name)
        del sys.modules[name.removesuffix(".py")]
    sys.path.insert(0, str(other))
    importlib.invalidate_caches()
    try:
        assert used_code(the("own_rule").halved(0.1)) == before
    finally:
        sys.path.remove(str(other))


def test_packages_are_followed_to_where_a_name_is_defined(own: Path) -> None:
    package = own / "own_package"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text("from own_package.inner import decay\nfrom . import far\n")
    (package / "inner" / "__init__.py").write_text("from .near import decay\n")
    (package / "inner" / "near.py").write_text("from ..deep import half\ndef decay(): half()\n")
    (package / "deep.py").write_text("def half(): pass\n")
    (package / "far.py").write_text("def unused(): pass\n")
    (own / "own_user.py").write_text(
        "import own_package as p\nfrom own_package import far as f\n"
        "def grad(view, worker, step):\n    return p.decay()\n"
    )
    found = {name for name in used_code(the("own_user").grad) if name.startswith("own_package")}
    inside = {"inner/near.py", "deep.py", "far.py"}
    assert found == {f"own_package/{name}" for name in inside}


def test_functions_are_found_wherever_they_are_held(own: Path) -> None:
    half = the("own_helper").half
    for holder in (
        functools.partial(max, key=half),
        lambda view: half(view),
        [{"deep": (half,)}],
        tg.FunctionTask(torch.ones(2), lambda view, worker, step: half(view)),
    ):
        assert "own_helper.py" in used_code(holder)


def test_the_layers_of_a_model_and_its_loss_are_found(own: Path) -> None:
    (own / "own_layer.py").write_text(
        "from torch import nn\n\nclass Layer(nn.Linear):\n    pass\n\n"
        "def loss(outputs, targets):\n    return outputs.mean()\n"
    )
    layer = the("own_layer")
    data = Data(Split(torch.ones(4, 2), torch.zeros(4, dtype=torch.int64)))
    model = nn.Sequential(nn.ReLU(), nn.Sequential(layer.Layer(2, 2)))
    assert "own_layer.py" in used_code(tg.ModuleTask(model, "cross_entropy", data, 2))
    assert "own_layer.py" in used_code(tg.ModuleTask(nn.Linear(2, 2), layer.loss, data, 2))


def test_what_was_typed_in_is_never_taken_for_the_same() -> None:
    spaces: list[dict[str, Any]] = [{"__name__": "__console__"} for _ in range(2)]
    for space in spaces:
        exec("def grad(view, worker, step):\n    return view\n", space)
    one, other = (used_code(space["grad"]) for space in spaces)
    assert one == {"__console__.grad": UNKNOWN}
    assert changes(one, other) == ["__console__.grad has no source file to compare"]


def test_a_file_that_no_longer_parses_is_known_by_its_digest(own: Path) -> None:
    rule = the("own_rule").halved(0.1)
    before = used_code(rule)
    (own / "own_rule.py").write_text("def halved(lr:\n")
    here = used_code(rule)
    assert "own_rule.py has changed" in changes(before, here)


def test_a_name_that_a_function_gets_later_is_no_code_yet() -> None:
    def make() -> tuple[Any, Any]:
        def grad(view: torch.Tensor, worker: int, step: int) -> torch.Tensor:
            return later(view)

        early = set(used_code(grad))
        later = halves
        return early, set(used_code(grad))

    def halves(view: torch.Tensor) -> torch.Tensor:
        return view / 2

    early, late = make()
    assert early == late  # both of this file
    assert any(name.endswith("test_used_code.py") for name in early)


def test_a_function_of_pythons_own_library_is_no_code_of_the_run() -> None:
    assert used_code(statistics.fmean) == {}


def test_a_script_goes_by_the_name_of_its_file(tmp_path: Path) -> None:
    """As `__main__` it would be another file to whoever imports it."""
    script = tmp_path / "own_script.py"
    script.write_text(
        "from tardigrad.core.used_code import used_code\n"
        "def grad(view, worker, step):\n    return view\n"
        "print(*used_code(grad))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=True, env=ENVIRONMENT
    )
    assert "own_script.py" in done.stdout.split()
    assert "__main__" not in done.stdout


def test_a_class_of_a_module_loaded_by_hand_is_found_by_its_methods(tmp_path: Path) -> None:
    file = tmp_path / "by_hand.py"
    file.write_text("class Own:\n    def value(self):\n        return 1\n")
    module = types.ModuleType("by_hand")
    exec(compile(file.read_text(), str(file), "exec"), vars(module))
    before = used_code(module.Own())
    file.write_text(file.read_text().replace("1", "2"))
    assert changes(before, used_code(module.Own())) == ["by_hand.py has changed"]


def test_what_lies_beside_an_installed_package_is_installed_too() -> None:
    """Also where this package lies there itself: it must not lead into torch, file by file."""
    libraries = Path(torch.__file__).parent.parent
    installed = SourceFile("tardigrad.rules.sgd", libraries / "tardigrad/rules/sgd.py", libraries)
    assert installed.locate("torch") is None
