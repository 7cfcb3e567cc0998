from collections.abc import Iterator

import pytest
from transport_peers import Echo, open_files, until


@pytest.fixture
def echo() -> Iterator[Echo]:
    before = open_files()
    made = Echo()
    yield made
    made.listener.close()
    until(lambda: open_files() <= before)
