"""What 0.1 called otherwise is found under its old name, with a warning."""

import importlib
import inspect
from dataclasses import dataclass

import pytest

import tardigrad as tg
from tardigrad.core.renamed_arguments import Grouped, grouped_arguments
from tardigrad.renamed import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_a_moved_module_is_found_with_a_warning(old: str) -> None:
    with pytest.warns(FutureWarning, match=f"tardigrad.{old} is now tardigrad.{MOVED[old]}"):
        module = importlib.import_module(f"tardigrad.{old}")
    assert (
        vars(module).items()
        >= {
            name: value
            for name, value in vars(importlib.import_module(f"tardigrad.{MOVED[old]}")).items()
            if not name.startswith("__")
        }.items()
    )


def test_a_moved_module_is_the_same_and_keeps_its_name() -> None:
    with pytest.warns(FutureWarning):
        old = importlib.import_module("tardigrad.spec.spec")
    new = importlib.import_module("tardigrad.experiment.spec")
    assert old.Spec is new.Spec
    for name in ("experiment", "experiment.spec"):
        module = importlib.import_module(f"tardigrad.{name}")
        assert module.__spec__ is not None
        assert module.__spec__.name == module.__name__ == f"tardigrad.{name}"


def test_the_package_that_a_function_hid_is_told_where_it_is_now() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"is now tardigrad\.scheduling"):
        importlib.import_module("tardigrad.schedule.analysis")
    assert callable(tg.schedule)
    with pytest.raises(ModuleNotFoundError, match=r"is now tardigrad\.planning"):
        importlib.import_module("tardigrad.plan.advice")
    assert callable(tg.plan)
    import tardigrad.scheduling.analysis as analysis

    assert analysis.__name__ == "tardigrad.scheduling.analysis"


def test_learning_rates_are_found_under_their_old_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(tg, "schedules", raising=False)  # left there by an import of the module
    with pytest.warns(FutureWarning, match=r"now tardigrad\.rates"):
        assert tg.schedules is tg.rates  # type: ignore[attr-defined]
    with pytest.warns(FutureWarning, match=r"rates\.StepRate"):
        assert tg.rates.Step is tg.rates.StepRate
    with pytest.raises(AttributeError, match="Nothing"):
        _ = tg.rates.Nothing


@dataclass(frozen=True)
class Bread:
    """A group of arguments."""

    flour: str = "rye"
    minutes: int = 60


@grouped_arguments(bread=Grouped(Bread, {"flour": "flour", "bake_minutes": "minutes"}))
def bake(oven: str, *, bread: Bread | None = None) -> tuple[str, Bread]:
    """Bake it."""
    return oven, bread or Bread()


def test_an_argument_that_is_now_in_a_group_is_put_there_with_a_warning() -> None:
    told = r"the arguments bake_minutes, flour of bake: write bread=tg\.Bread\(minutes=…, flour=…\)"
    with pytest.warns(DeprecationWarning, match=told) as warned:
        made = bake("clay", bake_minutes=40, flour="spelt")  # type: ignore[call-arg]
    assert made == ("clay", Bread("spelt", 40))
    assert [one.filename for one in warned] == [__file__]  # where the caller has to change it
    assert bake("clay", bread=Bread("spelt")) == ("clay", Bread("spelt"))


def test_an_old_argument_beside_its_group_is_refused() -> None:
    with pytest.raises(ValueError, match=r"flour of bake: write bread=tg\.Bread\(flour=…\).* both"):
        bake("clay", bread=Bread(), flour="spelt")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="'sugar'"):
        bake("clay", sugar=1)  # type: ignore[call-arg]


def test_only_the_new_signature_is_told() -> None:
    assert list(inspect.signature(bake).parameters) == ["oven", "bread"]
    assert bake.__doc__ == "Bake it."
