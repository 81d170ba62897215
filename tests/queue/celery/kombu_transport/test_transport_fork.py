"""A process that consumes and forks, as Celery's prefork pool does."""

import subprocess
import sys

from blimp.queue.brokers.streams.visibility import StreamsSession
from tests.queue.celery.kombu_transport.conftest import Connect, counts, send
from tests.queue.conftest import DEADLINE_S

PROGRAM = "tests.queue.celery.kombu_transport.forking_process"


def test_a_forked_child_touches_nothing_of_its_parents(
    connect: Connect, streams: str, session: StreamsSession
) -> None:
    send(connect(), "first", "second", "third")
    found = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.queue.celery.kombu_transport.forking_process",
            streams,
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    assert found.stdout.splitlines() == [
        "child took ['from the child']",
        "child acked 1",
        "child is True",
        "parent acked [1, 1]",
        "parent took ['first', 'kept', 'second', 'third']",
    ], found.stderr
    assert counts(session).in_flight == 0
    assert counts(session, "other").in_flight == 0
