"""Remote control over RabbitMQ."""

import threading
import zlib
from typing import Any

import kombu
import pytest

from blimp.queue import TaskApp
from blimp.queue.control.command_sender import send_command
from blimp.queue.control.listener import EXCHANGE
from blimp.queue.extensions import Broadcast
from tests.queue.behaviour.rabbitmq.conftest import Depths
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.rabbitmq import find_rabbitmq

find_rabbitmq()


def test_asked_and_changed(app: TaskApp, name: str) -> None:
    app.task(name="add")(lambda a: a + 1)
    more = f"{name}.more"

    def control(command: str, **arguments: object) -> object:
        return send_command(app, command, arguments, destination=["w"], timeout_s=DEADLINE_S)["w"]

    with working(app, name="w") as worker:
        assert control("ping") == {"ok": "pong"}
        assert control("add_consumer", queue=more) == {"ok": f"add consumer {more}"}
        assert app.send_task("add", (1,), queue=more).get(DEADLINE_S) == 2
        assert app.send_task("add", (2,)).get(DEADLINE_S) == 3
        assert control("cancel_consumer", queue=more) == {"ok": f"no longer consuming from {more}"}
        app.send_task("add", (3,), queue=more)
        assert app.send_task("add", (4,)).get(DEADLINE_S) == 5
        assert control("cancel_consumer", queue=name)
        assert control("active_queues") == []
        waiting = app.send_task("add", (5,))
        bound = control(
            "add_consumer", queue=name, exchange=f"{name}.x", exchange_type="topic", routing_key="#"
        )
        assert bound == {"ok": f"add consumer {name}"}
        assert waiting.get(DEADLINE_S) == 6
        assert worker.counts["reconnects"] == 0
        depths = Depths(app.broker)
        wait_until(lambda: depths.ready(more) == 1, "it was taken")
        depths.connection.release()
        assert control("shutdown") == {"ok": "shutting down"}


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


def test_what_waits_for_its_rate_goes_back_at_a_stop(app: TaskApp, name: str) -> None:
    app.task(name="slow", rate_limit="1/h")(lambda: None)
    app.task(name="free")(lambda: None)
    with working(app, prefetch=2) as worker:
        app.send_task("slow").get(DEADLINE_S)
        for _ in range(4):
            app.send_task("slow")
        app.send_task("free").get(DEADLINE_S)
        assert worker.counts["received"] == 6
    depths = Depths(app.broker)
    wait_until(lambda: depths.ready(name) == 4, "they are not given back")
    depths.connection.release()
