"""Remote control over RabbitMQ."""

import threading
import zlib
from typing import Any

import kombu
import pytest

from blimp.queue import TaskApp
from blimp.queue.broadcast.listener import EXCHANGE
from blimp.queue.celery.control.command_sender import send_command
from blimp.queue.extensions import Broadcast
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.rabbitmq import find_rabbitmq

find_rabbitmq()


@pytest.mark.parametrize("bad", ["amq.direct", "\u00e9" * 200, "locked"])
def test_a_queue_that_is_refused_does_not_keep_it_from_the_others(
    app: TaskApp, name: str, bad: str
) -> None:
    app.task(name="add")(lambda a: a + 1)

    def control(command: str, **arguments: object) -> Any:
        return send_command(app, command, arguments, destination=["w"], timeout_s=DEADLINE_S)["w"]

    with kombu.Connection(app.broker) as stranger, working(app, name="w") as worker:
        kombu.Queue("locked", exclusive=True)(stranger.channel()).queue_declare()
        assert bad in control("add_consumer", queue=bad)["error"]
        assert app.send_task("add", (1,)).get(DEADLINE_S) == 2
        assert worker.queues == (name,)
        assert worker.counts["reconnects"] == 1
        with stranger.channel() as channel:
            channel.queue_delete("locked")
        assert control("add_consumer", queue=f"{name}.more")["ok"]
        assert app.send_task("add", (2,), queue=f"{name}.more").get(DEADLINE_S) == 3


@pytest.mark.parametrize("compression", ["application/x-gzip", "none that there is"])
@pytest.mark.parametrize("level", [EXCHANGE, "emergency"])
def test_nothing_is_unpacked_and_the_emergency_broadcast_stays_open(
    app: TaskApp, compression: str, level: str
) -> None:
    """A small message could be larger than this computer, and an unknown one end the link."""
    heard = threading.Event()

    @app.on_broadcast("stop")
    def stop(_: Broadcast) -> dict[str, object]:
        heard.set()
        return {}

    log = Silence()
    exchange = app.emergency_exchange if level == "emergency" else level
    with kombu.Connection(app.broker) as stranger, working(app, name="w", log=log):
        kombu.Producer(stranger.channel()).publish(
            zlib.compress(b'{"method": "ping", "id": "i", "name": "stop"}'),
            exchange=kombu.Exchange(exchange, type="fanout", durable=False),
            content_type="application/json",
            content_encoding="utf-8",
            headers={"compression": compression},
        )
        assert send_command(app, "ping", destination=["w"], timeout_s=DEADLINE_S)
        wait_until(
            lambda: any("unreadable" in consumer[1] for consumer in log.lines), "it was not named"
        )
        assert log.events("emergency broadcasts lost") == []
        assert not heard.is_set()
        assert app.broadcast("stop").get(DEADLINE_S) == {}
