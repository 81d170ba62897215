"""What was delivered too often is not run again, and its caller gets an error."""

import threading

import pytest

from blimp.errors import TaskFailed
from blimp.queue import TaskApp, chord
from blimp.queue.brokers.base import MOST_DELIVERIES
from blimp.queue.redis.keys import GROUP, Keys
from tests.queue.conftest import DEADLINE_S, Silence, working
from tests.queue.server_view import Look

LAPSED_MS = 60_000


def deliver(look: Look, times: int, *, queue: str = "tests") -> None:
    """Have all that waits in `queue` be delivered so often, last to a worker that has died."""
    stream = Keys().queue(queue).levels[2]
    found = look.server.xreadgroup(GROUP, "dead", {stream: ">"})
    for id, _ in found[0][1]:
        look.server.xclaim(stream, GROUP, "dead", 0, [id], idle=LAPSED_MS, retrycount=times)


def make_group(look: Look, *, queue: str = "tests") -> None:
    look.server.xgroup_create(Keys().queue(queue).levels[2], GROUP, "0", mkstream=True)


@pytest.mark.parametrize("is_part", [False, True])
def test_it_fails_with_its_errback_and_is_a_dead_letter(
    app: TaskApp, look: Look, is_part: bool
) -> None:
    ran: list[str] = []
    reported: list[str] = []
    heard = threading.Event()
    app.task(name="poison")(lambda: ran.append("poison"))
    app.task(name="body")(lambda results: ran.append("body"))

    @app.task(name="notified", ignore_result=True)
    def tell(id: str) -> None:
        reported.append(id)
        heard.set()

    make_group(look)
    if is_part:
        body = app.get_task("body").s().on_error(app.get_task("notified").s())
        waits = chord([app.get_task("poison").s()], body).apply_async()
    else:
        waits = app.send_task("poison", link_error=[{"task": "notified"}])
    deliver(look, MOST_DELIVERIES)
    with working(app, log=Silence()):
        with pytest.raises(TaskFailed, match="delivered 20 times without being completed"):
            waits.get(DEADLINE_S)
        assert app.send_task("poison").get(DEADLINE_S) is None  # another is run
        assert heard.wait(DEADLINE_S)
    assert ran == ["poison"]
    assert reported == [waits.id]
    assert look.dead_reasons() == ["poison: delivered 20 times without being completed"]
