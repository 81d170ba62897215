"""The server killed under load, as it ships; each way is `python -m tests.faults.server_kills`."""

from pathlib import Path

import pytest

from blimp.service.stack.broker import server_arguments
from tests.faults.server_kills import campaign


@pytest.mark.long
def test_a_killed_server_loses_nothing_under_the_appendfsync_that_ships() -> None:
    arguments = server_arguments(binary=Path("valkey-server"), directory=Path("/run/b"))
    shipped = arguments[arguments.index("--appendfsync") + 1]
    count = campaign(appendfsync=shipped, end="kill", ends=4, seed=1)
    assert count.ok, count
