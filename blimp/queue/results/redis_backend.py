"""Results in Redis, in the keys and on the channels that Celery uses."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import LinkError, NotGenuine, ResultError
from blimp.nesting import shallow
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES, to_json
from blimp.queue.protocol.record import Record, State, decode, fault_of, open_record, result_place
from blimp.queue.redis.client import type_checked
from blimp.queue.redis.keys import FAILED_RESULTS, group_key, result_key
from blimp.queue.redis.scripts import Script, read_functions
from blimp.queue.redis.urls import is_refusal
from blimp.queue.results.backend import KEEP_S, GrowingWatch, ResultBackend

if TYPE_CHECKING:
    from redis import Redis

    from blimp.clock import Clock
    from blimp.queue.protocol.signing import Signer
    from blimp.queue.redis.client import RedisServer

STORE = Script(read_functions("results.lua") + "return store_result(KEYS[1], ARGV[1], ARGV[2])")
LOOK_AGAIN_S = 5.0
FIRST_LOOK_S = 1.0  # without any report the broker may hang, which only a question shows
AT_ONCE = 1000  # keys in one command
BARRIER = "all of it"  # a ping's word; redis-py has another one in its own
BARRIER_S = 5.0  # until an answer to it; the read before it has had one


class RedisResults(ResultBackend):
    """Results on a Redis server.

    signer: signs each record for its task's id, and believes no other record. A reader of the
    server has no result then, but a PENDING record that says why in its `reason`.
    """

    def __init__(
        self,
        *,
        server: RedisServer,
        clock: Clock,
        keep_s: int = KEEP_S,
        limit_bytes: int = MAX_MESSAGE_BYTES,
        signer: Signer | None = None,
    ) -> None:
        super().__init__(keep_s=keep_s, limit_bytes=limit_bytes, clock=clock)
        self.server = server
        self._signer = signer

    def encode(self, record: Record) -> bytes:
        data = super().encode(record)
        if self._signer is None:
            return data
        return self._signer.append_to(data, place=result_place(record.id))

    # --- writing ---------------------------------------------------------------------------

    def store(self, record: Record, *, at: str | None = None) -> bool:
        data = self.encode(record)
        if at is None or at not in self.server.brokers.urls:
            return self.write(record.id, data)
        with self.server.link(at):
            return self._write(self.server.client_of(at), record.id, data)

    def announce(self, record: Record, *, at: str) -> None:
        """Publish `record`: a server whose disk is full stores nothing, and still does that."""
        with self.server.link(at):
            self.server.client_of(at).publish(result_key(record.id), self.encode(record))

    def write(self, id: str, data: bytes) -> bool:
        return self.server.ask(lambda client: self._write(client, id, data))

    def _write(self, client: Redis, id: str, data: bytes) -> bool:
        run = partial(STORE.run, client, [result_key(id)], [data, self.keep_s])
        return bool(type_checked(run))

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        return self.server.ask(lambda client: self._write_many(client, records))

    def _write_many(
        self, client: Redis, records: Sequence[tuple[str, bytes]]
    ) -> list[bool | ResultError]:
        """Write all in one round trip. An error that passes by itself is raised."""
        from redis.exceptions import NoScriptError

        answers = self._send(client, records)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            client.script_load(STORE.text)
            answers = self._send(client, records)  # what was written already stays as it is
        for answer in answers:
            if isinstance(answer, Exception) and not is_refusal(answer):
                raise answer
        return [
            ResultError(f"{result_key(id)}: {answer}")
            if isinstance(answer, Exception)
            else bool(answer)
            for (id, _), answer in zip(records, answers, strict=True)
        ]

    def _send(self, client: Redis, records: Sequence[tuple[str, bytes]]) -> list[Any]:
        # redis-py's own Script first asks whether the server knows it.
        with client.pipeline(transaction=False) as pipe:
            for id, data in records:
                pipe.evalsha(STORE.digest, 1, result_key(id), data, self.keep_s)
            answers: list[Any] = pipe.execute(raise_on_error=False)
        return answers

    # --- reading ---------------------------------------------------------------------------

    def read(self, id: str) -> bytes | None:
        return self._get(result_key(id))

    def get(self, id: str) -> Record:
        return self._record(id, self.read(id))

    def get_many(self, ids: Sequence[str]) -> list[Record]:
        parts = [ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE)]
        return [
            self._record(id, data)
            for part in parts
            for id, data in zip(part, self._read_many(part), strict=True)
        ]

    def _record(self, id: str, data: bytes | None) -> Record:
        try:
            return Record(id=id, state=State.PENDING) if data is None else self._open(id, data)
        except NotGenuine as error:
            return Record(id=id, state=State.PENDING, fault=fault_of(error))

    def _open(self, id: str, data: bytes) -> Record:
        return open_record(id, data, signer=self._signer)

    def _get(self, key: str) -> bytes | None:
        data: Any = self.server.ask(lambda client: type_checked(lambda: client.get(key)))
        found: bytes | None = data
        return found

    def _read_many(self, ids: Sequence[str]) -> list[bytes | None]:
        if len(ids) == 1:
            return [self.read(ids[0])]  # MGET does not tell a wrong type from a missing key
        keys = [result_key(id) for id in ids]
        found: Any = self.server.ask(lambda client: client.mget(keys))
        return list(found)

    def failures(self, *, limit: int, names: Container[str] | None = None) -> list[Record]:
        """The index holds the last 10,000; see redis/results.lua."""

        def ask(client: Any) -> list[Record]:
            found: list[Record] = []
            start = 0
            while len(found) < limit:
                ids = client.zrevrange(FAILED_RESULTS, start, start + limit - 1)
                if not ids:
                    break
                start += len(ids)
                texts = [id.decode(errors="replace") for id in ids]
                for id, data in zip(texts, client.mget(map(result_key, texts)), strict=True):
                    with contextlib.suppress(ResultError, NotGenuine):
                        if data and (record := self._open(id, data)).is_of(names):
                            found.append(record)
            return found[:limit]

        return self.server.ask(lambda client: type_checked(partial(ask, client)))

    def forget(self, id: str, *others: str) -> None:
        def delete(client: Any) -> None:
            with client.pipeline(transaction=False) as pipe:
                pipe.delete(*map(result_key, (id, *others)))
                pipe.zrem(FAILED_RESULTS, id, *others)
                pipe.execute()

        self.server.ask(delete)

    def watch(self, *ids: str) -> PublishedWatch:
        return PublishedWatch(
            server=self.server,
            ids=ids,
            clock=self.clock,
            read=self._read_many,
            open=self._open,
            look_s=LOOK_AGAIN_S,
        )

    # --- groups ----------------------------------------------------------------------------

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        key, data = group_key(id), to_json(document)
        self.server.ask(lambda client: client.set(key, data, ex=self.keep_s or None))

    def group(self, id: str) -> dict[str, Any] | None:
        key = group_key(id)
        data = self._get(key)
        try:
            return None if data is None else msgspec.json.decode(shallow(data), type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            size = len(data or b"")
            raise ResultError(f"{key} of {size} bytes cannot be read: {error}") from error

    def forget_group(self, id: str) -> None:
        self.server.ask(lambda client: client.delete(group_key(id)))

    def close(self) -> None:
        self.server.close()


class PublishedWatch(GrowingWatch):
    """The records of tasks as they are published on a Redis server.

    A server does not keep what it publishes. So the stored records are read at the start, after
    a new connection, and every `look_s` seconds, should a publication be lost (the server failed,
    or the result was not written by a worker).

    read: returns the stored record of each task, None for one that has none. open: returns the
        record in its bytes; what raises NotGenuine is passed over, and counted.
    """

    def __init__(
        self,
        *,
        server: RedisServer,
        ids: Sequence[str],
        clock: Clock,
        read: Callable[[Sequence[str]], list[bytes | None]],
        look_s: float,
        open: Callable[[str, bytes], Record] = lambda _, data: decode(data),
    ) -> None:
        self._open = open
        self._server = server
        self._ids = {result_key(id): id for id in ids}
        self._newest: dict[str, bytes] = {}  # what was returned last, by key
        self._clock = clock
        self._read = read
        self._look_s = look_s
        self._url = ""
        self._pubsub: Any = None
        self._looked_s: float | None = None
        self._stored: dict[str, bytes] = {}  # what was read, and not returned yet, by key
        self._received: deque[Any] = deque()  # what had been published before that was read
        self._unconfirmed: set[str] = set()  # keys that the server has not confirmed since `add`
        self._confirmed: set[str] = set()  # what was stored of them before is to be read
        self._closed = False
        self._subscribing = threading.Lock()
        self._subscribe()

    def next(self, *, timeout_s: float) -> Record | None:
        deadline_s = self._clock.now_s() + timeout_s
        while not self._closed and self._ids:
            if self._url != self._server.brokers.current:
                self._subscribe()
            now_s = self._clock.now_s()
            if self._looked_s is None or now_s - self._looked_s >= self._look_s:
                self._look(list(self._ids))
                self._looked_s = now_s
            left_s = min(deadline_s, self._looked_s + self._look_s) - now_s
            record = None
            busy = self._stored or self._confirmed
            received = self._next_received(0.0 if busy else max(0.0, left_s))
            if received is None and self._confirmed:
                keys, self._confirmed = self._confirmed, set()
                self._look(list(keys))
            if (key := self._message_key(received)) is not None:
                self._stored.pop(key, None)
                # A database commits a record before it publishes it: it may have been read.
                if received["data"] != self._newest.get(key):
                    with contextlib.suppress(ResultError):
                        record = self._take(key, received["data"])
            elif self._stored and not self._received and (received is None or now_s >= deadline_s):
                key = next(iter(self._stored))
                record = self._take(key, self._stored.pop(key))
            if record is not None:
                return record
            if self._clock.now_s() >= deadline_s and not self._stored:
                break  # also in a flood of what is not genuine
        return None

    def settle(self) -> None:
        """Take in what the server has confirmed already. Does not wait; by the thread of `next`.

        To be called between `add` of new ids and sending their tasks: if all is confirmed, nothing
        can be missed, and `next` looks after FIRST_LOOK_S only. Raises LinkError.
        """
        self._looked_s = None
        while self._unconfirmed and (received := self._next_received(0.0)) is not None:
            self._message_key(received)
        self._confirmed.clear()
        if not self._unconfirmed:
            self._looked_s = self._clock.now_s() - max(0.0, self._look_s - FIRST_LOOK_S)

    def _message_key(self, received: Any) -> str | None:
        """Return the key of a record that is watched, None for what is none."""
        if received is None or received["type"] not in ("subscribe", "message"):
            return None
        key: str = received["channel"].decode()
        if received["type"] == "subscribe":
            self._unconfirmed.discard(key)
            self._confirmed.add(key)
        return key if received["type"] == "message" and key in self._ids else None

    def _receive(self, timeout_s: float) -> Any:
        pubsub = self._pubsub
        try:
            with self._server.link(self._url):
                return pubsub.get_message(timeout=timeout_s)
        except (LinkError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            if self._pubsub is not pubsub:
                return None  # `add` has subscribed at another server
            if isinstance(error, LinkError):
                raise
            # It was closed.
            raise LinkError(f"closed while waiting for results: {error}") from None

    def _next_received(self, timeout_s: float) -> Any:
        return self._received.popleft() if self._received else self._receive(timeout_s)

    def _receive_all(self) -> None:
        """Receive what was published until now. Raises LinkError.

        A server may answer the connection that reads a record before it sends, to the connection
        that is subscribed, what was published earlier.
        """
        with self._subscribing, self._server.link(self._url):
            if not self._ids:
                return  # and no channel: the server would answer in another form
            pubsub = self._pubsub
            pubsub.ping(BARRIER)
        deadline_s = self._clock.now_s() + BARRIER_S
        while (left_s := deadline_s - self._clock.now_s()) > 0.0 and self._pubsub is pubsub:
            if (received := self._receive(left_s)) is None:
                continue
            if received["type"] == "pong":
                return
            self._received.append(received)
        if self._pubsub is pubsub:
            raise LinkError(f"no answer to a ping in {BARRIER_S:g} s while waiting for results")

    def _look(self, wanted: list[str]) -> None:
        for keys in self._parts(wanted):
            found = self._read([self._id_of(key) for key in keys])
            self._stored |= {
                key: data
                for key, data in zip(keys, found, strict=True)
                if data is not None and data != self._newest.get(key)
            }
        self._receive_all()  # older reports come before what was read

    def _id_of(self, key: str) -> str:
        """Return the task's id, also of one that another thread has just discarded."""
        return self._ids.get(key) or key.removeprefix(result_key(""))

    @staticmethod
    def _parts(keys: list[str]) -> list[list[str]]:
        return [keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE)]

    def add(self, *ids: str) -> None:
        keys = {result_key(id): id for id in ids}
        with self._subscribing, self._server.link(self._url):
            if self._closed:
                raise LinkError("closed while waiting for results")
            for key in keys:  # who comes later has not seen it
                self._newest.pop(key, None)
            self._ids |= keys
            self._unconfirmed |= keys.keys()
            if self._url == self._server.brokers.current:
                self._pubsub.subscribe(*keys)
        if self._url != self._server.brokers.current:  # nobody has read, and seen it, since
            self._subscribe()

    def discard(self, *ids: str) -> None:
        keys = [result_key(id) for id in ids]
        with self._subscribing:
            for key in keys:
                self._ids.pop(key, None)
                self._newest.pop(key, None)
                self._stored.pop(key, None)
                self._unconfirmed.discard(key)
                self._confirmed.discard(key)
            if not self._ids:
                self.forged = 0
            if not self._closed:
                with contextlib.suppress(LinkError), self._server.link(self._url):
                    self._pubsub.unsubscribe(*keys)

    def _subscribe(self) -> None:
        self._url = self._server.brokers.current
        self._looked_s = None  # what is stored on this server is not known yet
        with self._subscribing, self._server.link(self._url):
            if self._closed:
                raise LinkError("closed while waiting for results")
            old, self._pubsub = self._pubsub, self._server.client_of(self._url).pubsub()
            self._received.clear()
            if old is not None:
                old.close()  # the thread that reads it goes on with the new one
            self._unconfirmed = set(self._ids)
            for keys in self._parts(list(self._ids)):
                self._pubsub.subscribe(*keys)

    def _take(self, key: str, data: bytes) -> Record | None:
        self._newest[key] = data
        try:
            return self._open(self._id_of(key), data)
        except NotGenuine:
            self.forged += 1
            return None

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and at the server that is in use now."""
        return not self._closed and self._url == self._server.brokers.current

    def close(self) -> None:
        with self._subscribing:
            if not self._closed:
                self._closed = True
                self._pubsub.close()
                self._pubsub.subscribed_event.set()  # a reader that comes now would wait for it
