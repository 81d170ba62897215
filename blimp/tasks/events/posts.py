"""Getting one message of events to Celery's exchange for them, `celeryev`.

Celery declares it as fanout on Redis and as topic elsewhere, and so must who sends to it. On
streams it is one stream that all listeners read, so a listener that is gone leaves nothing that
grows; one that lags is given what is not older than KEEP_MS nor one of more than KEEP messages.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Protocol

from blimp.tasks.broker.carrier import STREAMS, is_on_redis
from blimp.tasks.message import CONTENT_ENCODING, CONTENT_TYPE

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp

EXCHANGE = "celeryev"
MOST_BYTES = 64_000  # of one message
KEEP = 1000  # messages: 64 MB at most, on the server
KEEP_MS = 60_000  # Celery's `event_queue_expires`

# On a full server it is refused: events are no reason to take what a stop needs.
# KEYS[1] stream of the exchange. ARGV: messages to keep, ms to keep them, head, body.
_BROADCAST = """
local time = redis.call('TIME')
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'h', ARGV[3], 'b', ARGV[4])
local oldest_ms = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[2]
redis.call('XTRIM', KEYS[1], 'MINID', '~', string.format('%.0f', oldest_ms))
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""


class Post(Protocol):
    def send(self, body: bytes, *, routing_key: str) -> None:
        """Send one message, once. Raises LinkError where the broker does not take it."""
        ...


def open_post(app: TaskApp, *, hostname: str) -> Post:
    """Return the way to listeners that the app's transport has. Connects on first use."""
    headers = {"hostname": hostname}
    return StreamsPost(app, headers) if app.transport == STREAMS else KombuPost(app, headers)


class StreamsPost:
    def __init__(self, app: TaskApp, headers: dict[str, Any]) -> None:
        from blimp.tasks.transport.keys import Keys

        self._app = app
        self._headers = headers
        self._key = Keys().fanout(EXCHANGE)

    def send(self, body: bytes, *, routing_key: str) -> None:
        from blimp.tasks.transport import wire

        properties = {
            "delivery_mode": 1,
            "delivery_info": {"exchange": EXCHANGE, "routing_key": routing_key},
            "delivery_tag": str(uuid.uuid4()),
            "priority": 0,
        }
        parcel = wire.pack(
            {
                "body": body,
                "content-encoding": CONTENT_ENCODING,
                "content-type": CONTENT_TYPE,
                "headers": self._headers,
                "properties": properties,
            }
        )
        words = (str(KEEP), str(KEEP_MS), parcel.head, parcel.body)
        self._app.broker_link.ask(lambda client: client.eval(_BROADCAST, 1, self._key, *words))


class KombuPost:
    def __init__(self, app: TaskApp, headers: dict[str, Any]) -> None:
        self._app = app
        self._headers = headers
        self._exchange: Any = None

    def send(self, body: bytes, *, routing_key: str) -> None:
        from kombu import Exchange

        if self._exchange is None:
            self._exchange = Exchange(EXCHANGE, type=_kind(self._app.transport))
        self._app.publisher.tell(
            body, exchange=self._exchange, routing_key=routing_key, headers=self._headers
        )


def _kind(transport: str) -> str:
    """Return the exchange's type, chosen as Celery does."""
    if is_on_redis(transport):
        return "fanout"
    from kombu.transport import get_transport_cls

    driver = getattr(get_transport_cls(transport), "driver_type", "")
    return "fanout" if driver in ("redis", "gcpubsub") else "topic"
