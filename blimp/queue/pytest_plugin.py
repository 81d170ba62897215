"""The fixture `blimp_queue` of pytest: tasks without a server, see blimp/queue/testing.

Tested by test_in_process.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from blimp.queue.app import TaskApp
    from blimp.queue.testing import InProcess


@pytest.fixture
def blimp_queue() -> Iterator[Callable[..., InProcess]]:
    """Call it with a TaskApp: until the end of the test that app needs no server.

    Returns the InProcess. start: what its clock shows, a datetime; by default the time now.
    """
    from blimp.queue.testing import in_process

    with ExitStack() as ends:

        def enter(app: TaskApp, *, start: datetime | None = None) -> InProcess:
            return ends.enter_context(in_process(app, start=start))

        yield enter
