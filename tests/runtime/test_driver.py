"""The driver beside actors that answer at once: what it saves, and when."""

from types import SimpleNamespace

import pytest
from ray.exceptions import RayActorError

from tardigrad.runtime import driver as module
from tardigrad.runtime.cut import cuts
from tardigrad.runtime.driver import Driver


class FakeShard:
    """Answers what a test has put into it."""

    def __init__(self):
        self.made = []
        self.saved = []
        self.held = False

    def take(self):
        taken, self.made = self.made, []
        return taken

    def __getattr__(self, name):
        answers = {
            "hold": lambda: setattr(self, "held", True),
            "resume": lambda: setattr(self, "held", False),
            "channels": dict,
            "snapshots": self.take,
            "save": self.saved.append,
        }
        return SimpleNamespace(remote=answers[name])


@pytest.fixture
def driven(monkeypatch, tmp_path):
    """A driver of two such shards, and the versions that it handed over."""
    monkeypatch.setattr(module.ray, "get", lambda answers: answers)
    driver, seen = object.__new__(Driver), []
    driver.shards = [SimpleNamespace(handle=FakeShard()) for _ in range(2)]
    driver.workers, driver.setup = {}, SimpleNamespace(folder=tmp_path)
    driver._snapshots, driver._evaluated = {}, -1
    driver.on_snapshot = lambda parts: seen.append([part.version for part in parts])
    return driver, [actor.handle for actor in driver.shards], seen


def test_a_version_is_evaluated_before_a_cut_leaves_it_behind(driven, tmp_path):
    driver, (first, second), seen = driven
    first.made = [SimpleNamespace(version=20)]
    assert not driver.cut()  # the second shard has yet to make it
    assert not cuts(tmp_path)
    assert not first.held
    second.made = [SimpleNamespace(version=20)]
    assert driver.cut()
    assert seen == [[20, 20]]
    assert first.saved == second.saved == [0]
    assert len(cuts(tmp_path)) == 1


def test_an_overdue_cut_does_not_wait_for_shards_that_are_always_apart(driven, tmp_path):
    driver, (first, _), _ = driven
    first.made = [SimpleNamespace(version=20)]
    assert not driver.cut()
    assert driver.cut(overdue=True)
    assert len(cuts(tmp_path)) == 1


def test_a_finished_shard_that_dies_is_found(driven, monkeypatch):
    driver, _, _ = driven

    def get(answer):
        if answer == "dead":
            raise RayActorError
        return answer

    monkeypatch.setattr(module.ray, "get", get)
    for shard, answer in enumerate(("alive", "dead")):
        status = SimpleNamespace(remote=lambda answer=answer: answer)
        driver.shards[shard] = SimpleNamespace(handle=SimpleNamespace(status=status))
    driver._dead, driver._done = set(), {("shard", 0), ("shard", 1), ("worker", 0)}
    driver._doubt_finished()
    assert driver._dead == {("shard", 1)}
    assert driver._done == {("shard", 0), ("worker", 0)}


def test_what_a_revived_shard_makes_again_is_not_waited_for(driven):
    driver, (first, second), seen = driven
    for shard in (first, second):
        shard.made = [SimpleNamespace(version=20)]
    assert driver.cut()
    first.made = [SimpleNamespace(version=20)]
    assert driver.cut()
    assert seen == [[20, 20]]
