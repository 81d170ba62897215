"""Two programs on one server, distinguished by the prefix of their keys."""

from typing import Any

import kombu
import pytest
import redis

from tests.queue.celery.kombu_transport.conftest import Basket, Connect, queue, send


@pytest.mark.parametrize("option", ["global_keyprefix", "key_prefix"])
def test_two_prefixes_share_nothing(connect: Connect, server: redis.Redis, option: str) -> None:
    direct = kombu.Exchange("direct", type="direct")
    fanout = kombu.Exchange("all", type="fanout")
    baskets = {}
    for prefix in ("one.", "two."):
        queues = (
            queue("q"),
            kombu.Queue("bound", direct, routing_key="k", message_ttl=60.0, expires=60.0),
            kombu.Queue(f"l{prefix}", fanout),
        )
        baskets[prefix] = Basket(connect(**{option: prefix}), *queues)
    for prefix, basket in baskets.items():
        producer = basket.connection.Producer()
        send(basket.connection, f"{prefix} q")
        send(basket.connection, "later", headers={"eta": "2100-01-01T00:00:00+00:00"})
        producer.publish(f"{prefix} bound", exchange=direct, routing_key="k")
        producer.publish(f"{prefix} all", exchange=fanout, routing_key="")
        producer.publish(f"{prefix} q", routing_key="q", once="the same")
        producer.publish(f"{prefix} q", routing_key="q", once="the same")
    for prefix, basket in baskets.items():
        found = sorted(basket.take_bodies(4))
        assert found == sorted(f"{prefix} {one}" for one in ("q", "q", "bound", "all"))
        assert basket.is_empty()
        basket.messages[0].reject()
        basket.messages[1].requeue()
    baskets["one."].channel.queue_delete("bound")
    keys: Any = server.keys()
    assert {key.decode()[:4] for key in keys} == {"one.", "two."}
