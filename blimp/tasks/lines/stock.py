"""kombu's own Redis transport, with what it lacks for a worker that is killed and restarted.

Each worker name keeps its unacknowledged messages under keys of its own, so that the same
name, started again, takes them back at once and nobody else's. kombu's own recovery, the
visibility timeout, is set so long that no task is ever doubled by it.

What stays as kombu has it: a message is popped first and recorded as unacknowledged
afterwards. A worker killed, or a link lost, between the two loses the message.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import redis as redis_py
from kombu.transport import redis as stock

from blimp.errors import MessageError

if TYPE_CHECKING:
    from blimp.tasks.results.redis import RedisResults

VISIBILITY_TIMEOUT_S = 7 * 86_400
PRIORITY_STEPS = stock.PRIORITY_STEPS
BODY_ENCODINGS = (None, "", "base64")  # those that kombu knows
SEPARATOR = stock.Channel.sep

_GIVE_BACK = (Path(__file__).parent / "give_back.lua").read_text()

# One message that could not be taken: raw bytes, queue, why.
OnPoison = Callable[[bytes, str, Exception], None]


class UnackedKeys:
    """The keys under which one worker name's unacknowledged messages stand."""

    def __init__(self, *, app: str, worker: str) -> None:
        self.messages = f"blimp.unacked.{app}.{worker}"
        self.index = f"{self.messages}.index"
        self.mutex = f"{self.messages}.mutex"

    def transport_options(self) -> dict[str, Any]:
        return {
            "unacked_key": self.messages,
            "unacked_index_key": self.index,
            "unacked_mutex_key": self.mutex,
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
        }


class StockQoS(stock.QoS):
    """Prefetch judged by the worker, which also knows what it took on another connection."""

    restore_at_shutdown = False  # the worker gives back what does not run, kombu would all
    room: Callable[[], bool] = staticmethod(lambda: True)

    def can_consume(self) -> bool:
        return self.room()

    def restore_visible(self, *_: Any, **__: Any) -> None:
        """Nothing: what is to be restored is restored when its worker's name starts again."""

    def forget(self, delivery_tag: str) -> None:
        """Drop a message that was settled past this channel. Any thread may call it."""
        self._quick_ack(delivery_tag)


class StockChannel(stock.Channel):
    """A channel that survives every message: what it cannot take goes to `on_poison`."""

    QoS = StockQoS
    on_poison: OnPoison
    limit_bytes: int
    stopping: Callable[[], bool]

    def identify(self) -> int:
        """Return the server's number of the connection that blocks for messages."""
        connection = self.client.connection_pool.get_connection()
        self.client.connection = connection
        connection.send_command("CLIENT", "ID")
        return int(connection.read_response())

    def _brpop_read(self, **options: Any) -> bool:
        try:
            try:
                reply = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                self.client.connection.disconnect()
                raise
            if not reply:
                # Out of drain_events at once where the worker stops; else on with waiting.
                raise TimeoutError if self.stopping() else Empty
            key, raw = reply
            queue = key.decode().rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            try:
                payload = open_envelope(raw, queue=queue, limit_bytes=self.limit_bytes)
                self.connection._deliver(payload, queue)
            except (OSError, redis_py.RedisError):
                raise  # the link, not the message
            except MessageError as error:
                self.on_poison(raw, queue, error)
            except Exception as error:
                self.on_poison(raw, queue, _unopened(error))
            return True
        finally:
            self._in_poll: Any = None
            self._flush_brpop_reauth()  # type: ignore[no-untyped-call]


class StockTransport(stock.Transport):
    Channel = StockChannel


class FanoutChannel(stock.Channel):
    """A channel of broadcasts that survives each: what it cannot take goes to `on_unheard`."""

    on_unheard: Callable[[MessageError], None]

    def _receive_one(self, connection: Any) -> Any:
        try:
            return super()._receive_one(connection)  # type: ignore[no-untyped-call]
        except (Empty, OSError, redis_py.RedisError):
            raise  # nothing came, or the link is lost
        except MessageError as error:
            self.on_unheard(error)
        except Exception as error:
            self.on_unheard(_unopened(error))
        return None  # not Empty: what was read with it from the socket would lie there

    def _deliver_fanout_message(self, message: object, exchange: str) -> Any:
        opened = check_envelope(message, queue=exchange)
        return super()._deliver_fanout_message(opened, exchange)  # type: ignore[no-untyped-call]


class FanoutTransport(stock.Transport):
    Channel = FanoutChannel


class UnackedStore:
    """Acknowledges and gives back past kombu's channels, from any thread, on any connection.

    A channel that was lost with its connection cannot acknowledge what still runs.
    Raises LinkError while the broker is away.
    """

    def __init__(self, *, link: RedisResults, keys: UnackedKeys) -> None:
        self._link = link
        self._keys = keys

    def ack(self, tag: str) -> None:
        with self._link.link():
            pipe = self._link.client.pipeline()
            pipe.hdel(self._keys.messages, tag)
            pipe.zrem(self._keys.index, tag)
            pipe.execute()

    def give_back(self, tag: str) -> bool:
        """Put one message back at the head of its queue, marked as delivered once more."""
        with self._link.link():
            stored = self._link.client.hget(self._keys.messages, tag)
            if stored is None:
                return False
            payload = json.loads(stored)[0]
            queue = mark_redelivered(payload)
            moved = self._link.client.eval(
                _GIVE_BACK,
                3,
                self._keys.messages,
                self._keys.index,
                queue,
                tag,
                json.dumps(payload),
            )
        return bool(moved)

    def restore(self, *, except_tags: Collection[str]) -> tuple[int, int]:
        """Give back everything but `except_tags`.

        Returns how many were given back, and how many were dropped because what is stored
        cannot be read: those would be met again at every start.
        """
        with self._link.link():
            indexed = self._link.client.zrange(self._keys.index, 0, -1, desc=True)
            known = self._link.client.hkeys(self._keys.messages)
        # Newest first, each to the head of its queue: the oldest comes first again.
        tags = dict.fromkeys(
            tag if isinstance(tag, str) else tag.decode() for tag in (*indexed, *known)
        )
        held = set(except_tags)
        restored = dropped = 0
        for tag in tags:
            if tag in held:
                continue
            try:
                restored += self.give_back(tag)
            except (ValueError, KeyError, TypeError, IndexError):
                self.ack(tag)
                dropped += 1
        return restored, dropped


class StockDelivery:
    """One message taken through the stock transport."""

    def __init__(self, *, message: Any, store: UnackedStore) -> None:
        self.tag: str = message.delivery_tag
        self.queue: str = message.delivery_info["routing_key"]
        self.spent = ""
        self._channel = message.channel
        self._store = store

    def ack(self) -> None:
        self._store.ack(self.tag)
        self._channel.qos.forget(self.tag)

    def reject(self, reason: str) -> None:  # noqa: ARG002
        """Drop it: this transport keeps no dead letters."""
        self.ack()

    def give_back(self, *, seen: bool = True) -> None:  # noqa: ARG002
        self._store.give_back(self.tag)
        self._channel.qos.forget(self.tag)


def open_envelope(raw: bytes, *, queue: str, limit_bytes: int) -> dict[str, Any]:
    """Return kombu's envelope around a message, with a delivery tag of our own.

    Raises MessageError for what kombu could not take.
    """
    # base64 makes three bytes four; headers come on top.
    if len(raw) > limit_bytes * 4 // 3 + 65_536:
        raise MessageError(f"message of {len(raw)} bytes: the limit is {limit_bytes} for its body")
    try:
        payload = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"message is not JSON: {error}") from None
    return check_envelope(payload, queue=queue)


def check_envelope(payload: object, *, queue: str) -> dict[str, Any]:
    """Return `payload` as kombu can take it, with a delivery tag of our own.

    Raises MessageError for what kombu could not take, and for what it would unpack: a small
    compressed body may be larger than this computer.
    """
    if not isinstance(payload, dict):
        raise MessageError(f"message is {type(payload).__name__}, must be an object")
    for name in ("headers", "properties"):
        if not isinstance(payload.get(name), dict):
            raise MessageError(f"message: {name!r} is missing or not an object")
    properties = payload["properties"]
    if not isinstance(payload.get("body"), str):
        raise MessageError("message: 'body' is missing or not a string")
    if payload["headers"].get("compression"):
        raise MessageError("message: header 'compression' is set: only plain bodies are accepted")
    if properties.get("body_encoding") not in BODY_ENCODINGS:
        raise MessageError(
            f"message: body encoding {properties['body_encoding']!r:.40}: only 'base64' is accepted"
        )
    information = properties.get("delivery_info")
    properties["delivery_info"] = {
        **(information if isinstance(information, dict) else {}),
        "exchange": "",  # where it goes back to: this very queue
        "routing_key": queue,
    }
    # The sender's tag names the record of the unacknowledged message: two with one tag
    # would share it, and the acknowledgement of one would lose the other.
    properties["delivery_tag"] = uuid.uuid4().hex
    return payload


def find_headers(raw: bytes) -> object:
    """Return the headers of a message that is wrong in some other way, None without any."""
    try:
        payload = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return payload.get("headers") if isinstance(payload, dict) else None


def _unopened(error: Exception) -> MessageError:
    return MessageError(f"message cannot be opened: {type(error).__name__}: {error}")


def mark_redelivered(payload: dict[str, Any]) -> str:
    """Count one more delivery in `payload`; return the list that it goes back into."""
    headers, properties = payload["headers"], payload["properties"]
    before = headers.get("blimp_delivery")
    headers["blimp_delivery"] = (before if isinstance(before, int) else 0) + 1
    headers["redelivered"] = True
    properties["delivery_info"]["redelivered"] = True
    queue: str = properties["delivery_info"]["routing_key"]
    return lane_key(queue, properties.get("priority"))


def lane_key(queue: str, priority: object) -> str:
    """Return the list that kombu keeps for `queue` at `priority`."""
    wanted = priority if isinstance(priority, int) else 0
    step = max((step for step in PRIORITY_STEPS if step <= wanted), default=0)
    return f"{queue}{SEPARATOR}{step}" if step else queue
