"""How tests are shared out between the processes of `make test`, and what they leave alone."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

ON_RAY = "tests/runtime/"
OF_DEATHS = ("extending", "faults", "hard_cases", "membership", "nodes")
"""Of those on Ray, the files that take half of the time: processes and nodes die in them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those on Ray first: they mostly wait, and others have room beside them."""
    items.sort(key=lambda item: not item.nodeid.startswith(ON_RAY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay together, and so does each half of those on Ray, which share one and its
    actors: with one Ray for all, they waited for one process at a time."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            if not path.startswith(ON_RAY):
                return path
            deaths = path.removeprefix(f"{ON_RAY}test_").removesuffix(".py") in OF_DEATHS
            return f"{ON_RAY}{'deaths' if deaths else 'others'}"

    config.option.loadscopereorder = False  # the order above
    return ByFile(config, log)


@pytest.fixture(autouse=True, scope="session")
def _no_notes_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Which code was run from this account is noted elsewhere, by processes of tests too."""
    before = os.environ.get("XDG_STATE_HOME")
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    yield
    if before is None:
        del os.environ["XDG_STATE_HOME"]
    else:
        os.environ["XDG_STATE_HOME"] = before
