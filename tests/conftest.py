"""How tests are shared out between the processes of `make test`, and what they leave alone."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

ON_RAY = "tests/runtime/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those on Ray first: they mostly wait, and all others have room beside them."""
    items.sort(key=lambda item: not item.nodeid.startswith(ON_RAY))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A file's tests stay together, and so do all on Ray, which share one and its actors."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return ON_RAY if nodeid.startswith(ON_RAY) else nodeid.partition("::")[0]

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
