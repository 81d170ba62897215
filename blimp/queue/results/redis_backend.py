"""Results in Redis, in the keys and on the channels that Celery uses."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import ResultError
from blimp.queue.protocol.message import MAX_MESSAGE_BYTES, to_json
from blimp.queue.protocol.record import Record, State, decode, encode
from blimp.queue.redis.keys import FAILED_RESULTS, group_key, result_key
from blimp.queue.redis.scripts import Script, read_functions
from blimp.queue.redis.urls import is_refusal
from blimp.queue.results.backend import KEEP_S
from blimp.queue.results.waiting import Watch, type_checked

if TYPE_CHECKING:
    from redis import Redis

    from blimp.clock import Clock
    from blimp.queue.redis.client import RedisServer

STORE = Script(read_functions("results.lua") + "return store_result(KEYS[1], ARGV[1], ARGV[2])")


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

    # --- writing ---------------------------------------------------------------------------

    def encode(self, record: Record) -> bytes:
        """Return `record` as it is stored. Raises ResultError if JSON cannot hold it."""
        return encode(record, limit_bytes=self._limit_bytes)

    def store(self, record: Record, *, at: str | None = None) -> bool:
        """Write and publish `record`; False if a final one is there already.

        at: the URL of one of several brokers, if it is not the one in use; any other is ignored.
        Raises ResultError if JSON cannot hold it, before anything is written.
        """
        data = self.encode(record)
        if at is None or at not in self.server.brokers.urls:
            return self.write(record.id, data)
        with self.server.link(at):
            return self._write(self.server.client_of(at), record.id, data)

    def write(self, id: str, data: bytes) -> bool:
        """Write and publish what `encode` returned; False if a final record is there already."""
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

    def get(self, id: str) -> Record:
        """Return the record of task `id`; a PENDING one if there is none."""
        data = self.read(id)
        return Record(id=id, state=State.PENDING) if data is None else decode(data)

    def read(self, id: str) -> bytes | None:
        """Return the record of task `id` as it is stored, None if there is none."""
        key = result_key(id)
        data: Any = self.server.ask(lambda client: type_checked(lambda: client.get(key)))
        return data.encode() if isinstance(data, str) else data

    def failures(self, *, limit: int) -> list[Record]:
        """Return the records of tasks that failed for good, the newest first.

        The index holds the last 10,000 (see redis/results.lua). Those whose record has expired,
        or cannot be read, are left out.
        """

        def ask(client: Any) -> list[Record]:
            found: list[Record] = []
            start = 0
            while len(found) < limit:
                ids = client.zrevrange(FAILED_RESULTS, start, start + limit - 1)
                if not ids:
                    break
                start += len(ids)
                keys = [result_key(id.decode(errors="replace")) for id in ids]
                for data in filter(None, client.mget(keys)):
                    with contextlib.suppress(ResultError):
                        found.append(decode(data))
            return found[:limit]

        return self.server.ask(lambda client: type_checked(partial(ask, client)))

    def forget(self, id: str) -> None:
        def delete(client: Any) -> None:
            with client.pipeline(transaction=False) as pipe:
                pipe.delete(result_key(id))
                pipe.zrem(FAILED_RESULTS, id)
                pipe.execute()

        self.server.ask(delete)

    def watch(self, *ids: str) -> Watch:
        """Return a subscription to the tasks `ids`, in force on return."""
        return Watch(server=self.server, ids=ids, clock=self._clock)

    # --- groups ----------------------------------------------------------------------------

    def save_group(self, id: str, document: dict[str, Any]) -> None:
        key, data = group_key(id), to_json(document)
        self.server.ask(lambda client: client.set(key, data, ex=self.keep_s or None))

    def group(self, id: str) -> dict[str, Any] | None:
        """Raises ResultError for what is no JSON object."""
        key = group_key(id)
        data: Any = self.server.ask(lambda client: type_checked(lambda: client.get(key)))
        try:
            return None if data is None else msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError) as error:
            raise ResultError(f"{key} of {len(data)} bytes cannot be read: {error}") from error

    def forget_group(self, id: str) -> None:
        self.server.ask(lambda client: client.delete(group_key(id)))

    # --- life ------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Nothing to do: a server has no tables."""

    def cleanup(self) -> int:
        """Nothing to do: the keys expire."""
        return 0

    def close(self) -> None:
        self.server.close()
