"""Messages that are too old when their task would begin."""

from datetime import UTC, datetime, timedelta

import pytest

from blimp.errors import (
    Expired,
)
from blimp.queue import State, TaskApp
from tests.queue.conftest import DEADLINE_S, wait_until, working


def test_what_is_too_old_does_not_begin(app: TaskApp) -> None:
    ran: list[int] = []

    @app.task(name="move")
    def move(number: int) -> int:
        ran.append(number)
        return number

    stale = move.apply_async((1,), ttl_s=0.01)
    late = move.apply_async((2,), expires=0.01)
    past = move.apply_async((3,), expires=datetime.now(UTC) - timedelta(seconds=1))
    fresh = move.apply_async((4,), ttl_s=60.0, expires=60.0)
    born_s = app.broker_clock.now_s()
    wait_until(lambda: app.broker_clock.now_s() > born_s + 0.02, "the clock stands")
    with working(app):
        with pytest.raises(Expired, match=r"s old, its time to live is 0\.01 s"):
            stale.get(DEADLINE_S)
        for handle in (late, past):
            with pytest.raises(Expired, match="s past its expiry"):
                handle.get(DEADLINE_S)
        assert fresh.get(DEADLINE_S) == 4
    assert stale.state is State.EXPIRED
    assert ran == [4]
