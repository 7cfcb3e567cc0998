"""Specs as TOML: round trips, changes, what is filled in, and what every mistake is told."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import tardigrad as tg
from tardigrad.clusters import CLUSTERS, Gamma
from tardigrad.experiment import Spec, changed, differences
from tardigrad.experiment.spec_data import SECTIONS, Table
from tardigrad.policies import POLICIES
from tardigrad.rules import RULES
from tardigrad.rules.rates import RATES, CosineRate, WarmUpRate
from tardigrad.tasks import TASKS
from tests.experiment.example_spec import EXAMPLE, example
from tests.rules.named_rules import NEEDED


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "example.toml"
    path.write_text(EXAMPLE)
    return path


def test_a_spec_survives_toml(file: Path) -> None:
    spec = Spec.load(file)
    assert Spec.of(tomllib.loads(spec.toml())) == spec
    again = file.with_name("again.toml")
    again.write_text(spec.toml())
    assert Spec.load(again) == spec
    assert Spec.load(again, ["seed=8"]) != spec


def test_what_the_file_says_is_what_is_built(file: Path) -> None:
    spec = Spec.load(file)
    assert spec.make_cluster() == Gamma(workers=4, heterogeneous=True)
    assert spec.make_policy() == tg.Async(wait=False)
    rule = spec.make_rule()
    after = CosineRate(lr=0.1, over=100.0)
    assert rule.lr == WarmUpRate(after, workers=4, over=10.0, by="updates")
    assert replace(rule, ema=None) == tg.rules.gap_aware(rule.lr, momentum=0.5)
    assert rule.ema == 0.9
    assert spec.make_work() == tg.OneGradient(clip_norm=2.0)
    constant = Spec.load(file, ["rule.lr.after=0.1"]).make_rule()
    assert constant.lr == WarmUpRate(0.1, workers=4, over=10.0, by="updates")
    schedule = spec.make_schedule()
    assert schedule == tg.schedule(tg.Async(wait=False), spec.make_cluster(), 60, seed=7)


def test_the_seed_and_the_workers_reach_the_task() -> None:
    data = {"name": "logistic_regression", "sampling": "partition", "batch_size": 2}
    first, second = (
        Spec.of(changed(example(), [f"seed={seed}"]) | {"task": data}).make_task()
        for seed in (1, 2)
    )
    assert not (first.start() == second.start()).all()
    own = Spec.of(changed(example(), ["seed=2"]) | {"task": {**data, "seed": 1}}).make_task()
    assert (first.start() == own.start()).all()


def test_every_name_can_stand_in_a_spec() -> None:
    """Signatures and hints of all parts can be read; what they need is only what has no default."""
    needed: dict[str, dict[str, Any]] = {
        **NEEDED,
        "backup": {"backups": 1},
        "soft_sync": {"groups": 2},
        "stale_synchronous": {"bound": 3},
        "bounded_delay": {"max_delay": 3},
        "ringmaster": {"bound": 3},
        "rennala": {"batch": 3},
        "malenia": {"batch": 3},
        "quorum": {"size": 2, "grace_s": 0.5},
    }
    for name in RULES:
        rate = "alpha" if name == "fedasync" else "lr"
        rule = {"name": name, rate: 0.1, **needed.get(name, {})}
        Spec.of(changed(example(), []) | {"rule": rule})
    for name in POLICIES.keys() & {*needed, "async", "sync"}:
        Spec.of(changed(example(), []) | {"policy": {"name": name, **needed.get(name, {})}})
    for name in TASKS:
        Spec.of(changed(example(), []) | {"task": {"name": name}})
    for name in CLUSTERS.keys() - {"trace"}:
        Spec.of(changed(example(), []) | {"cluster": {"name": name, "workers": 3}})
    assert set(RATES) >= {"step", "linear", "cosine", "exponential", "warm_up"}


def test_tables_inside_tables_are_built_by_their_types() -> None:
    cluster = {
        "name": "gamma",
        "workers": 3,
        "absences": [{"worker": 1, "leaves_s": 300}],
        "network": {"latency_s": 1, "outages": [{"shard": 0, "stops_s": 5.0, "returns_s": 9}]},
    }
    made = Spec.of(changed(example(), []) | {"cluster": cluster}).make_cluster()
    assert isinstance(made, Gamma)
    assert made.absences[0].leaves_s == 300.0
    assert made.network is not None
    assert made.network.outages[0].returns_s == 9.0


def test_a_policy_may_stand_inside_a_policy() -> None:
    policy = {"name": "ramp_up", "updates": 9, "policy": {"name": "backup", "backups": 1}}
    made = Spec.of({**example(), "policy": policy}).make_policy()
    assert made == tg.RampUp(tg.Backup(backups=1), updates=9)
    with pytest.raises(ValueError, match=r"policy\.policy\.backups must be a whole number"):
        Spec.of({**example(), "policy": {**policy, "policy": {"name": "backup", "backups": "x"}}})


def test_changes_are_toml_or_bare_strings() -> None:
    out = changed(
        {"a": {"b": 1}, "policy": "async"}, ["a.b=[1, 2]", "a.c.d=x y", "policy.wait=true"]
    )
    assert out == {
        "a": {"b": [1, 2], "c": {"d": "x y"}},
        "policy": {"name": "async", "wait": True},
    }
    assert changed({}, ["a=1\nb=2"]) == {"a": "1\nb=2"}  # one change sets one key


def test_a_section_may_be_a_bare_name() -> None:
    assert Spec.of({**example(), "policy": "sync"}).policy == {"name": "sync"}


def test_differences_are_dotted_keys() -> None:
    one, other = {"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": 1, "c": 4}, "e": 3}
    assert differences(one, other) == ["a.c", "d", "e"]
    assert differences(one, one) == []


MISTAKES = {
    "rule.name=gap_awar": "rule.name: there is no rule 'gap_awar'; did you mean 'gap_aware'?",
    "policy=asinc": "there is no policy 'asinc'; did you mean 'async'?",
    "cluster.name=gama": "there is no cluster 'gama'; did you mean 'gamma'?",
    "task.name=quadratc": "there is no task 'quadratc'; did you mean 'quadratic'?",
    "rule.lr.rate=warmup": "rule.lr.rate: there is no rate 'warmup'; did you mean",
    "polcy=sync": "has no key 'polcy'; did you mean 'policy'?",
    "rule.momentun=0.1": "[rule] has no key 'momentun'; did you mean 'momentum'?",
    "work.clip_nrm=1": "[work] has no key 'clip_nrm'; did you mean 'clip_norm'?",
    "task.dimensions=4": "[task] has no key 'dimensions'; did you mean 'dimension'?",
    "rule.lr=0": "[rule] lr must be greater than 0",
    "rule.lr=-0.1": "[rule] lr must be greater than 0",
    "rule.lr=nan": "[rule] lr must be a finite number",
    "rule.lr=fast": "rule.lr must be a number or a table",
    "rule.lr=true": "rule.lr must be a number or a table",
    "rule.lr.after.lr=-1": "[rule.lr.after] lr must be greater than 0",
    "rule.lr.after.over=x": "rule.lr.after.over must be a number, got 'x'",
    "rule.lr.after=fast": "rule.lr.after must be a number or a table",
    "rule.lr.by=weeks": "rule.lr.by must be one of 'updates', 'samples', 'epochs'",
    "rule.ema=2": "[rule] ema must be in (0, 1)",
    "work.clip_norm=x": "work.clip_norm must be a number",
    "work.clip_norm=0": "[work] clip_norm must be greater than 0",
    "work.clip_norm=nan": "[work] clip_norm must be a finite number",
    "rule={lr=1}": 'rule does not say which rule: add name = "…"',
    "rule=7": "rule must be a table",
    "task.dimension=1.5": "task.dimension must be a whole number, got 1.5",
    "task.dtype=3": "task.dtype must be a string, got 3",
    "policy.wait=1": "policy.wait must be true or false, got 1",
    "cluster.workers=0": "[cluster] workers must be",
    "cluster.workers=true": "cluster.workers must be a whole number, got True",
    "cluster={name='gamma'}": "cluster.workers is missing: add workers = … under [cluster]",
    "cluster.network.latency_s=x": "cluster.network.latency_s must be a number",
    "cluster.absences=[{worker=1}]": "cluster.absences[0].leaves_s is missing",
    "cluster={name='dispatcher',workers=2,change=1}": "cluster.change must be",
    "updates=0": "updates must be a whole number of at least 1",
    "updates=many": "updates must be a whole number, got 'many'",
    "seed=-1": "seed must be a whole number of at least 0",
    "shards=0": "shards must be a whole number of at least 1",
    "shard_by=row": "shard_by must be one of 'slice', 'tensor'",
    "engine=fat": "engine must be one of",
    "splits=[1]": "splits[0] must be a string, got 1",
    "splits=['exam']": "got 'exam'",
    "measures=['gab']": "measures must be one of 'gap', 'b_staleness', got 'gab'",
    "evaluate_every=-1": "evaluate_every must be",
    "no equals sign": "write key=value, such as rule.lr=0.01",
    ".lr=1": "write key=value",
    "updates.x=1": "updates is 60 in the spec, not a table",
}


@pytest.mark.parametrize("change", MISTAKES)
def test_a_mistake_is_told_with_its_path(file: Path, change: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011
        Spec.load(file, [change])
    assert MISTAKES[change] in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"updates = \n", "is not valid TOML"), (b"\xff", "is not valid TOML"), (None, "no file")],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "bad.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Spec.load(path)
    with pytest.raises(ValueError, match="cannot be read"):
        Spec.load(tmp_path)


def test_a_spec_without_a_needed_section_says_which() -> None:
    for section in ("updates", "task", "rule", "cluster"):
        data = example()
        del data[section]
        with pytest.raises(ValueError, match=f"{section} is missing"):
            Spec.of(data)


def test_a_rates_key_of_version_0_1_is_taken_with_a_warning() -> None:
    inner = "after = {rate = 'cosine', lr = 0.1, over = 100}"
    assert inner in EXAMPLE.replace('"', "'")
    old = tomllib.loads(EXAMPLE.replace("rate =", "schedule ="))
    with pytest.warns(FutureWarning, match=r"rule\.lr.*: the key schedule is now rate") as told:
        spec = Spec.of(old)
    assert len(told) == 2  # the rate inside the other too
    assert spec == Spec.of(tomllib.loads(EXAMPLE))


def test_every_table_that_names_something_is_a_section() -> None:
    tables = {name for name, hint in get_type_hints(tg.Spec).items() if hint == Table}
    assert tables - {"stop", "ray"} == set(SECTIONS)
