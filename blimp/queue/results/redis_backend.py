"""Results in Redis, in the keys and on the channels that Celery uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from blimp.errors import ResultError
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES, to_json
from blimp.queue.protocol.record import Record, State, decode, encode
from blimp.queue.redis.keys import group_key, result_key
from blimp.queue.redis.scripts import Script
from blimp.queue.redis.urls import is_refusal
from blimp.queue.results.options import KEEP_S

if TYPE_CHECKING:
    from redis import Redis

    from blimp.clock import Clock
    from blimp.queue.redis.server import RedisServer
    from blimp.queue.results.watch import Watch

T = TypeVar("T")

_STORE = Script((Path(__file__).parent / "store.lua").read_text())


class RedisResults:
    """A ResultBackend on a Redis server. Every method raises LinkError without an answer."""

    commits = False

    def __init__(
        self,
        *,
        server: RedisServer,
        clock: Clock,
        keep_s: int = KEEP_S,
        limit_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self.server = server
        self._clock = clock
        self.keep_s = keep_s
        self._limit_bytes = limit_bytes

    def store(self, record: Record, *, at: str | None = None) -> bool:
        """Write and publish `record`; False when a final one stands already.

        at: the URL of one of several brokers, where it is not to be the one in use; one that
        is none of them is no matter.
        Raises ResultError where JSON cannot hold it, before anything is written.
        """
        data = self.encode(record)
        if at is None or at not in self.server.brokers.urls:
            return self.write(record.id, data)
        with self.server.link(at):
            return self._write(self.server.client_of(at), record.id, data)

    def write(self, id: str, data: bytes) -> bool:
        """Write and publish what `encode` returned; False when a final record stands already."""
        return self.server.ask(lambda client: self._write(client, id, data))

    def _write(self, client: Redis, id: str, data: bytes) -> bool:
        return bool(named(partial(_STORE.run, client, [result_key(id)], [data, self.keep_s])))

    def write_many(self, records: Sequence[tuple[str, bytes]]) -> list[bool | ResultError]:
        return self.server.ask(lambda client: self._write_many(client, records))

    def _write_many(
        self, client: Redis, records: Sequence[tuple[str, bytes]]
    ) -> list[bool | ResultError]:
        """Write all in one round trip. An error that ends by itself is raised."""
        from redis.exceptions import NoScriptError

        answers = self._send(client, records)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            client.script_load(_STORE.text)
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
        # redis-py's own Script asks first whether the server knows it.
        with client.pipeline(transaction=False) as pipe:
            for id, data in records:
                pipe.evalsha(_STORE.digest, 1, result_key(id), data, self.keep_s)
            answers: list[Any] = pipe.execute(raise_on_error=False)
        return answers

    def encode(self, record: Record) -> bytes:
        """Return `record` as it is stored. Raises ResultError where JSON cannot hold it."""
        return encode(record, limit_bytes=self._limit_bytes)

    def get(self, id: str) -> Record:
        """Return what is known of task `id`; a PENDING record where nothing is."""
        data = self.read(id)
        return Record(id=id, state=State.PENDING) if data is None else decode(data)

    def read(self, id: str) -> bytes | None:
        """Return the record of task `id` as it is stored, None where nothing is."""
        data: Any = self.server.ask(lambda client: named(lambda: client.get(result_key(id))))
        return data.encode() if isinstance(data, str) else data

    def forget(self, id: str) -> None:
        self.server.ask(lambda client: client.delete(result_key(id)))

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        key, data = group_key(id), to_json(document)
        self.server.ask(lambda client: client.set(key, data, ex=self.keep_s or None))

    def group(self, id: str) -> dict[str, Any] | None:
        """Raises ResultError for what is no JSON object."""
        key = group_key(id)
        data: Any = self.server.ask(lambda client: named(lambda: client.get(key)))
        try:
            return None if data is None else msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise ResultError(f"{key} of {len(data)} bytes cannot be read: {error}") from error

    def forget_group(self, id: str) -> None:
        self.server.ask(lambda client: client.delete(group_key(id)))

    def prepare(self) -> None:
        """A server needs nothing."""

    def cleanup(self) -> int:
        """The server forgets by itself."""
        return 0

    def watch(self, id: str) -> Watch:
        """Return a subscription to task `id`, in force when this returns."""
        return self.watch_many([id])

    def watch_many(self, ids: Sequence[str]) -> Watch:
        from blimp.queue.results.watch import Watch

        return Watch(server=self.server, ids=ids, clock=self._clock)

    def close(self) -> None:
        self.server.close()


def named(function: Callable[[], T]) -> T:
    """Call `function`. Raises ResultError for a key of a wrong type: it stays one."""
    import redis

    try:
        return function()
    except redis.ResponseError as error:
        if str(error).startswith("WRONGTYPE"):
            raise ResultError(f"what is kept there is something else: {error}") from None
        raise
