"""A session on the test's server, to look at and change the queues past the commands."""

from collections.abc import Iterator

import pytest

from blimp.queue.brokers.streams.store import StreamsOptions
from blimp.queue.brokers.streams.visibility import StreamsSession


@pytest.fixture
def session(url: str) -> Iterator[StreamsSession]:
    path = url.partition("://")[2].partition("?")[0]
    session = StreamsSession(url=f"unix://{path}?db=0", options=StreamsOptions(consumer="observer"))
    yield session
    session.close()
