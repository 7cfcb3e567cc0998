"""Code of the user's own, named in a spec: where it is looked for, and what is told when it is not
what it should be."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tardigrad as tg
from tardigrad.core.own_code import own_modules, own_name
from tardigrad.core.used_code import changes, used_code
from tardigrad.experiment import entries, points
from tests.experiment.own_files import EXAMPLES, RULE, forgotten, spec_of, write


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with forgotten(tmp_path):
        yield


def refusal(**sections: Any) -> str:
    with pytest.raises(ValueError, match=r".") as refused:
        spec_of(**sections).make_task()
    told = str(refused.value)
    assert "\n" not in told
    return told


def test_every_section_takes_a_file() -> None:
    spec = spec_of(
        task={"name": f"{EXAMPLES}/two_moons.py:two_moons", "batch_size": 8},
        rule={"name": f"{EXAMPLES}/root_penalty.py:root_penalty", "lr": 0.1, "power": 1},
        policy=f"{EXAMPLES}/pairs.py:Pairs",
        cluster={"name": f"{EXAMPLES}/two_speeds.py:TwoSpeeds", "workers": 4, "slow": 2},
        link={"name": f"{EXAMPLES}/late_start.py:LateStart", "pulls": 3},
        seed=5,
    )
    task: Any = spec.make_task()
    assert (task.batch_size, task.seed) == (8, 5)
    assert repr(spec.make_rule().correction) == "RootPenalty(power=1.0)"
    assert repr(spec.make_policy()) == "Pairs()"
    assert repr(spec.make_cluster()).startswith("TwoSpeeds(")
    assert repr(spec.make_link()) == "LateStart(pulls=3)"
    assert spec.make_schedule() is not None


def test_paths_start_at_the_spec_or_at_the_working_folder(tmp_path: Path) -> None:
    write("specs/lib/mine.py", RULE)
    write("here.py", RULE.replace("0.5", "0.25"))
    write("specs/a.toml", spec_of().toml())
    inside = 'rule={name="lib/mine.py:mine",lr=0.1}'
    write("specs/b.toml", spec_of().toml().replace('"sgd"', '"lib/mine.py:mine"'))
    assert tg.Spec.load("specs/b.toml").rule["name"] == f"{tmp_path}/specs/lib/mine.py:mine"
    told = "there is no file"
    with pytest.raises(ValueError, match=told):
        tg.Spec.load("specs/a.toml", [inside])
    typed = tg.Spec.load("specs/a.toml", ["rule.name=here.py:mine"])
    assert repr(typed.make_rule().correction) == "Power(power=0.25)"
    again = tg.Spec.of(typed.data())
    assert again == typed


def test_a_module_is_found_in_the_working_folder(tmp_path: Path) -> None:
    write("own_pkg/__init__.py", "")
    write("own_pkg/rules.py", RULE)
    spec = spec_of(rule={"name": "own_pkg.rules:mine", "lr": 0.1})
    assert repr(spec.make_rule().correction) == "Power(power=0.5)"
    assert spec.rule["name"] == "own_pkg.rules:mine"


def test_a_nested_name_and_a_rate_are_own_code_too() -> None:
    write("mine.py", RULE, "from tardigrad.rules.rates import StepRate\n")
    lr = {"rate": "mine.py:StepRate", "lr": 0.1, "milestones": [3.0]}
    spec = spec_of(rule={"name": "mine.py:mine", "lr": lr})
    assert spec.make_rule().lr == tg.rates.StepRate(0.1, milestones=(3.0,))
    inner = f"{EXAMPLES}/pairs.py:Pairs"
    policy = spec_of(policy={"name": "partial_pull", "policy": inner}).make_policy()
    assert "policy=Pairs()" in repr(policy)


def test_arguments_without_types_are_taken_as_they_stand() -> None:
    write(
        "mine.py",
        "import tardigrad as tg\ndef mine(lr, **more):\n    return tg.rules.sgd(lr, **more)\n",
    )
    lr = {"rate": "cosine", "lr": 0.1, "over": 5}
    rule = spec_of(rule={"name": "mine.py:mine", "lr": lr, "momentum": 0.5}).make_rule()
    assert rule == tg.rules.sgd(tg.rates.CosineRate(0.1, 5), momentum=0.5)


def test_what_holds_for_any_rule_holds_for_ones_own() -> None:
    write("mine.py", RULE)
    section = {"name": "mine.py:mine", "lr": 0.1, "weight_decay": 0.25, "ema": 0.5}
    section |= {"rate_scale": {"2.*": 3}}
    rule = spec_of(rule=section).make_rule()
    assert (rule.weight_decay, rule.ema) == (0.25, 0.5)
    assert rule.rate_scale == (("2.*", 3.0),)


def test_compared_rules_are_parted_by_commas_and_colons() -> None:
    write("a=b/mine.py", RULE)
    write("fixed.py", "import tardigrad as tg\ndef fixed():\n    return tg.rules.sgd(0.5)\n")
    spec = spec_of(rule={"name": "sgd", "lr": 0.2, "weight_decay": 0.01})
    text = "sgd:lr=0.02,a=b/mine.py:mine,a=b/mine.py:mine:lr=0.1:power=2,fixed.py:fixed"
    found = entries(spec, text)
    assert [entry.label for entry in found] == text.split(",")
    rules = [entry.spec.make_rule() for entry in found]
    assert [rule.lr for rule in rules] == [tg.rules.sgd(lr).lr for lr in (0.02, 0.2, 0.1, 0.5)]
    assert [rule.weight_decay for rule in rules] == [0.01] * 4
    assert repr(rules[2].correction) == "Power(power=2.0)"


def test_quotes_keep_separators_together() -> None:
    write("mine.py", "import tardigrad as tg\ndef mine(lr, word=''):\n"
          "    assert word == 'a:b,c'\n    return tg.rules.sgd(lr)\n")  # fmt: skip
    (found,) = entries(spec_of(), 'mine.py:mine:word="a:b,c"')
    assert found.spec.rule["word"] == "a:b,c"


def test_a_sweep_takes_ones_own_among_its_values() -> None:
    write("mine.py", RULE)
    made = points(spec_of().data(), ["rule.name=[sgd,mine.py:mine]", "seed=[0,1]"])
    assert [point.label for point in made] == ["rule.name=sgd"] * 2 + ["rule.name=mine.py:mine"] * 2
    assert repr(made[2].spec.make_rule().correction) == "Power(power=0.5)"


def test_a_changed_file_is_executed_again_and_a_helper_with_it() -> None:
    write("own_power.py", "POWER = 0.5\n")
    write("mine.py", RULE.replace("= 0.5", "= POWER") + "\n", "from own_power import POWER\n")
    spec = spec_of(rule={"name": "mine.py:mine", "lr": 0.1})
    first = spec.make_rule()
    assert spec.make_rule() == first
    assert type(spec.make_rule().correction) is type(first.correction)
    write("own_power.py", "POWER = 2.5\n")
    assert repr(spec.make_rule().correction) == "Power(power=2.5)"
    assert repr(first.correction) == "Power(power=0.5)"


def test_two_files_of_one_name_are_two_modules() -> None:
    write("a/mine.py", RULE)
    write("b/mine.py", RULE.replace("0.5", "0.75"))
    made = [spec_of(rule={"name": f"{f}/mine.py:mine", "lr": 0.1}).make_rule() for f in "ab"]
    assert [repr(rule.correction) for rule in made] == ["Power(power=0.5)", "Power(power=0.75)"]


@pytest.mark.parametrize("changed", ["a/mine.py", "b/mine.py"])
def test_a_change_in_either_of_two_files_of_one_name_is_told(changed: str) -> None:
    write("a/mine.py", RULE)
    write("b/mine.py", RULE, "import torch\n")

    def used() -> dict[str, str]:
        rules = [spec_of(rule={"name": f"{f}/mine.py:mine", "lr": 0.1}).make_rule() for f in "ab"]
        return used_code(*rules)

    before = used()
    assert changes(before, used()) == []
    write(changed, "\n# more\n", Path(changed).read_text())
    assert changes(before, used()) == ["mine.py has changed"]


def test_helpers_of_one_name_in_two_folders_are_refused() -> None:
    for folder in "ab":
        write(f"{folder}/own_same.py", "POWER = 0.5\n")
        write(f"{folder}/mine.py", RULE, "from own_same import POWER\n")
    spec_of(rule={"name": "a/mine.py:mine", "lr": 0.1})
    told = refusal(rule={"name": "b/mine.py:mine", "lr": 0.1})
    assert "mine.py imports own_same from" in told
    assert "a/own_same.py: rename one of them" in told


FAULTS = [
    ("mime.py:mine", "there is no file .*mime.py; did you mean 'mine.py'?"),
    ("mine.py:mini", r"has no 'mini'; did you mean 'mine'\? It has Power, mine"),
    ("mine.py", "does not say which function: write .*mine.py:NAME. It has Power, mine"),
    ("own_nowhere.rules:f", "there is no module own_nowhere in .*: own_nowhere/rules.py:f"),
    ("wrong.py:NUMBER", "is an int, which cannot be called"),
    ("raises.py:f", r"importing .*raises.py failed: NameError: .*\(raises.py, line 3\)"),
    ("syntax.py:f", r"importing .*syntax.py failed: SyntaxError: .*\(syntax.py, line 2\)"),
    ("needs.py:f", r"failed: ModuleNotFoundError: .* 'own_absent' \(needs.py, line 1\)"),
    ("script.py:f", r"ends the program .*SystemExit: 3 \(script.py, line 2\).*__main__"),
    ("wrong.py:nothing", r"\] nothing returned None, which is no rule .*return a tardigrad.Rule"),
    ("wrong.py:part", r"part returned Raw\(\), which is no rule \(it is Raw\)"),
    ("wrong.py:fails", r"\[rule\] fails failed: ZeroDivisionError: .*\(wrong.py, line 9\)"),
    ("wrong.py:other", r"\[rule\] has no key 'lr'; did you mean 'lrs'\? It takes lrs, "),
    ("wrong.py:by_place", "lr cannot be given by name: take the / out"),
    ("builtins:dict", "does not say what it takes"),
    ("sgd:lr=0.1", "there is no rule 'sgd:lr=0.1'. Known: .*your own as"),
    ("sdg", "there is no rule 'sdg'; did you mean 'sgd'.*Known: sgd, adam.*FILE.py:NAME"),
]

WRONG = """
from tardigrad.rules import Raw
NUMBER = 3
def nothing(lr):
    return None
def part(lr):
    return Raw()
def fails(lr):
    return 1 / 0
def other(lrs=1):
    return None
def by_place(lr, /):
    return None
"""


@pytest.mark.parametrize(("name", "told"), FAULTS, ids=[name for name, _ in FAULTS])
def test_bad_input_is_one_clear_line(name: str, told: str) -> None:
    write("mine.py", RULE)
    write("wrong.py", WRONG)
    write("raises.py", "import math\n\nx = missing\n")
    write("syntax.py", "import math\ndef f(:\n")
    write("needs.py", "import own_absent\n")
    write("script.py", "import sys\nsys.exit(3)\n")
    said = refusal(rule={"name": name, "lr": 0.1})
    assert re.search(told, said), said
    assert said.startswith(("rule.name", "[rule]"))


def test_other_kinds_are_refused_too() -> None:
    write("wrong.py", "from torch import nn\ndef net():\n    return nn.Linear(2, 2)\n")
    assert "is no task (it has no layout, batch_size" in refusal(task="wrong.py:net")
    for section in ("policy", "cluster", "link"):
        told = refusal(**{section: "wrong.py:net"})
        assert f"which is no {section} (it is Linear): return a tardigrad." in told


def test_which_texts_name_ones_own() -> None:
    assert own_name("sgd") is None
    assert own_name("sgd:lr=0.1") is None
    assert own_name("a b:c") is None
    assert own_name("pkg.mod:f") == ("pkg.mod", "f")
    assert own_name("/x/a:b/my.py:f") == ("/x/a:b/my.py", "f")


def test_the_files_of_modules_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are thousands, and every run on Ray asks which of them are the user's own."""
    write("mine.py", RULE)
    spec_of(rule={"name": "mine.py:mine", "lr": 0.1}).make_rule()
    first = own_modules()
    assert first

    def never(path: Path, strict: bool = False) -> Path:
        raise AssertionError(f"{path} is looked for again")

    monkeypatch.setattr(Path, "resolve", never)
    assert own_modules() == first
