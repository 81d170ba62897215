"""How a task becomes a message."""

import uuid

from blimp.queue import TaskApp
from blimp.queue.protocol.message import HIGH, new_id
from blimp.queue.redis.keys import Keys
from tests.queue.server_view import Look


def test_a_task_sent_by_name_has_the_options_of_the_known_task(app: TaskApp, look: Look) -> None:
    app.task(name="aim", queue="guns", priority=HIGH, ttl_s=5.0)(lambda: None)
    app.send_task("aim")
    app.tasks["aim"].delay()
    app.send_task("aim", queue="other")
    assert look.server.xlen(Keys().queue("guns").levels[1]) == 2
    assert look.server.xlen(Keys().queue("other").levels[1]) == 1
    entries = look.server.xrange(Keys().queue("guns").levels[1])
    assert all(b'"blimp_ttl_s":5.0' in fields[b"h"] for _, fields in entries)


def test_an_id_is_a_random_uuid() -> None:
    ids = {new_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(str(uuid.UUID(id)) == id and uuid.UUID(id).version == 4 for id in ids)
