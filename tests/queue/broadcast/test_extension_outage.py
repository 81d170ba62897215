"""After an outage of the broker changes stand, and commands are received again."""

import contextlib
from typing import Any

from blimp.errors import LinkError
from blimp.queue import TaskApp
from blimp.queue.celery.control.command_sender import send_command
from tests.broker import EmbeddedBroker
from tests.queue.conftest import DEADLINE_S, wait_until, working


def test_after_an_outage_it_answers_and_keeps_its_changes(
    own_broker: EmbeddedBroker, transport: str
) -> None:
    url = own_broker.url
    retry: dict[str, Any] = {"interval_start": 0.05, "interval_step": 0.0, "interval_max": 0.05}
    with TaskApp("tests", broker=url, result_backend=url, connection_retry_policy=retry) as app:
        app.task(name="add")(lambda a: a + 1)

        def control(command: str, **arguments: object) -> Any:
            return send_command(app, command, arguments, destination=["worker"], timeout_s=1.0).get(
                "worker"
            )

        def answers() -> bool:
            with contextlib.suppress(LinkError):
                return bool(control("ping"))
            return False

        with working(app) as worker:
            assert control("add_consumer", queue="more") == {"ok": "add consumer more"}
            own_broker.stop()
            wait_until(lambda: worker.counts["reconnects"] > 0, "it has not noticed")
            error = worker.consumer_loop.change_queues(("more", "late"), timeout_s=0.1)
            assert error is not None
            assert "it is made when it does" in error
            own_broker.start()
            wait_until(answers, "it does not hear")
            for queue in ("more", "late"):
                handle = app.send_task("add", (1,), queue=queue)
                assert handle.get(DEADLINE_S) == 2
            assert worker.queues == ("more", "late")
