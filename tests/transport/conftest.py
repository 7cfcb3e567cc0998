from collections.abc import Iterator

import pytest

from tests.transport.transport_peers import Echo, open_files, until


@pytest.fixture(autouse=True)
def _no_file_stays_open() -> Iterator[None]:
    before = open_files()
    yield
    until(lambda: open_files() <= before)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.listener.close()
