"""Snapshots from the ship to its watchers: lossy, latest wins.

One Redis stream per ship. The entry id is the broker's clock, so readers know the age of a
snapshot although the machines' clocks disagree. Neither side waits for the other: the
publisher drops what it cannot send, the reader skips to the newest.

With a key each snapshot is signed for its ship, with its age and the broker's time at sending. The
reader passes over what is not signed, and counts the age from the time that is: a recorded snapshot
that is sent again is as old as it is.

Beside them goes the record of what happened (`blimp/link/timeline.py`), each once, in a stream of
its own. What is sent again has an id that is known.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from blimp.clock import Clock, SystemClock
from blimp.closing import Closing
from blimp.errors import LinkError, NotAuthorised, NotGenuine
from blimp.link.timeline import Happening, ordered
from blimp.queue.protocol.signing import Signer
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.urls import hide_password
from blimp.types import Snapshot

KEY_PREFIX = "blimp:telemetry:"
TIMELINE_PREFIX = "blimp:timeline:"
KEPT_ENTRIES = 600  # about half a minute at 20 Hz; the server trims in whole nodes
KEPT_HAPPENINGS = 1000
SENT_AT_ONCE = 16  # of them, with each snapshot
TIMELINE_S = 86_400  # for who asks a day later what has happened
KEPT_S = 600  # then a ship that no longer runs leaves nothing on a shared broker
PUBLISH_TIMEOUT_S = 0.25
READ_TIMEOUT_S = 2.0
BEHIND_S = 0.04  # a snapshot that is older may not be the newest any more
LOOK_BACK = 16  # entries among which one that is signed is looked for


def stream_key(vehicle: str) -> str:
    return KEY_PREFIX + vehicle


def timeline_key(vehicle: str) -> str:
    return TIMELINE_PREFIX + vehicle


class Dated(NamedTuple):
    """A happening as the ground reads it. age_s: how long ago it was, when it was read."""

    happening: Happening
    age_s: float

    @property
    def id(self) -> str:
        return self.happening.id

    @property
    def t_s(self) -> float:
        return self.happening.t_s


class TelemetryPublisher(Closing):
    """The ship's end. One thread; never raises and never waits long on a dead broker."""

    def __init__(
        self, url: str, vehicle: str, *, signer: Signer | None = None, clock: Clock | None = None
    ) -> None:
        self._vehicle = vehicle
        self._key = stream_key(vehicle)
        self._redis = _connect(url, timeout_s=PUBLISH_TIMEOUT_S)
        self._encoder = msgspec.json.Encoder()
        self._signer = signer
        self._clock = clock or SystemClock()
        self._ahead_ms: float | None = None  # the broker's clock of ours, by its last answer
        self._published: set[str] | None = None  # ids on the broker; None: nobody has looked yet

    def publish(self, snapshot: Snapshot, age_s: float) -> bool:
        """Send `snapshot`, which is `age_s` old. Returns False if it was dropped."""
        fields = {b"snapshot": self._encoder.encode(snapshot), b"age_s": repr(float(age_s))}
        try:
            if self._signer is not None:
                fields = self._signed(fields, self._signer)
            with self._redis.pipeline(transaction=False) as pipe:
                pipe.xadd(self._key, fields, maxlen=KEPT_ENTRIES, approximate=True)
                pipe.expire(self._key, KEPT_S)
                pipe.time()  # the id of an entry stands still when the clock goes back
                seconds, microseconds = pipe.execute()[-1]
        except _link_errors():
            return False
        # Early, if the answer was long on its way: so no snapshot is taken for younger than it is.
        self._ahead_ms = 1e3 * seconds + 1e-3 * microseconds - 1e3 * self._clock.now_s()
        return True

    def tell(self, waiting: deque[Happening]) -> None:
        """Add to the broker's record what waits, and remove it; never raises, as `publish`.

        Some at a time and in one answer: a slow link has snapshots to carry, too.
        """
        key = timeline_key(self._vehicle)
        if not waiting:
            return
        try:
            if self._published is None:  # an earlier worker has sent some of it
                entries = self._redis.xrevrange(key, count=KEPT_HAPPENINGS)
                self._published = {fields.get(b"id", b"").decode() for _, fields in entries}
            published = self._published
            batch = list(itertools.islice(waiting, SENT_AT_ONCE))
            with self._redis.pipeline(transaction=False) as pipe:
                for one in batch:
                    if one.id not in published:
                        pipe.xadd(key, self._fields(one), maxlen=KEPT_HAPPENINGS, approximate=True)
                pipe.expire(key, TIMELINE_S)
                pipe.execute()
            for one in batch:
                waiting.popleft()
                published.add(one.id)
        except _link_errors():
            return

    def _fields(self, one: Happening) -> dict[bytes, Any]:
        data = self._encoder.encode(one)
        if self._signer is not None:
            data = self._signer.append_to(data, place=_record_of(self._vehicle))
        age_s = repr(max(0.0, self._clock.now_s() - one.t_s))
        return {b"id": one.id, b"happening": data, b"age_s": age_s}

    def _signed(self, fields: dict[bytes, Any], signer: Signer) -> dict[bytes, Any]:
        if self._ahead_ms is None:
            seconds, _ = self._redis.time()
            self._ahead_ms = 1e3 * (seconds - self._clock.now_s())
        fields[b"sent_ms"] = f"{1e3 * self._clock.now_s() + self._ahead_ms:.0f}"
        place = _place(self._vehicle, fields[b"age_s"], fields[b"sent_ms"])
        return fields | {b"snapshot": signer.append_to(fields[b"snapshot"], place=place)}

    def close(self) -> None:
        _close(self._redis)


class TelemetryReader(Closing):
    """The ground's end. Raises LinkError if the broker does not answer.

    signer: believes only what one of its keys has signed.
    """

    def __init__(self, url: str, vehicle: str, *, signer: Signer | None = None) -> None:
        self._signer = signer
        self._url = url
        self._vehicle = vehicle
        self._key = stream_key(vehicle)
        self._redis = _connect(url, timeout_s=READ_TIMEOUT_S)
        self._decoder = msgspec.json.Decoder(Snapshot)
        self._happening_decoder = msgspec.json.Decoder(Happening)
        self._record_id = "0-0"

    def latest(self) -> tuple[Snapshot, float] | None:
        """Return the newest snapshot and its age in seconds; None if no ship has published.

        The age is the time since it reached the broker, on the broker's clock, plus the age
        it had when it was sent. Raises LinkError if the entry cannot be read.
        """
        entry_id, found = self._newest()
        if entry_id is None:
            return None
        if found is None:
            raise LinkError(
                f"telemetry of {self._vehicle!r} on {hide_password(self._url)}: entry {entry_id} "
                "is not a snapshot of this version"
                + ("" if self._signer is None else ", or is not signed with our key")
            )
        return found

    def past(self, *, span_s: float, step_s: float) -> list[tuple[Snapshot, float]]:
        """Return snapshots of the last `span_s`, `step_s` apart, the oldest first, with their ages.

        As far back as the broker keeps them, and without those that cannot be read. In one
        answer, of what is wanted alone. Raises LinkError if the broker does not answer.
        """

        def ask() -> Any:
            seconds, microseconds = self._redis.time()
            now_ms = round(1e3 * seconds + 1e-3 * microseconds)
            with self._redis.pipeline(transaction=False) as pipe:
                for back in range(round(span_s / step_s), 0, -1):
                    from_ms = now_ms - round(1e3 * back * step_s)
                    pipe.xrange(self._key, from_ms, from_ms + round(1e3 * step_s) - 1, count=1)
                return pipe.execute(), 1e-3 * now_ms

        answers, now_s = self._ask(ask)
        found = (entry for entries in answers for entry in entries)
        read = (self._read(raw_id, fields, now_s) for raw_id, fields in found)
        return [one for one in read if one is not None]

    def follow(self, *, poll_s: float = 1.0) -> Iterator[tuple[Snapshot, float] | None]:
        """Yield the next snapshot and its age, or the newest if the next is over 0.04 s old.

        Yields None whenever `poll_s` (0 to 1.5 s) passes without one, so that a view can let
        its values age. Skips what it cannot read. Raises LinkError as soon as the broker
        does not answer; a new call goes on from the then newest.
        """
        block_ms = max(1, round(1e3 * min(poll_s, READ_TIMEOUT_S - 0.5)))
        last_id, found = self._newest()
        yield found
        while True:
            news = self._ask(partial(self._next, last_id or "0-0", block_ms))
            if news is None:
                yield None
                continue
            last_id, found = news
            if found is None or found[1] > BEHIND_S:
                last_id, found = self._newest()
            yield found

    def news(self, *, wait_s: float = 0.0) -> list[Dated]:
        """Return what the record has got since the last call, at first all that the broker has.

        In its order, each once; it waits for some up to `wait_s` (0 to 1.5 s). What cannot be read,
        or is not signed, is left out. Raises LinkError.
        """
        block_ms = round(1e3 * min(wait_s, READ_TIMEOUT_S - 0.5)) or None

        def ask() -> Any:
            with self._redis.pipeline(transaction=False) as pipe:
                key = timeline_key(self._vehicle)
                pipe.xread({key: self._record_id}, count=KEPT_HAPPENINGS, block=block_ms)
                pipe.time()  # answered after the wait
                return pipe.execute()

        news, (seconds, microseconds) = self._ask(ask)
        if not news:
            return []
        ((_, entries),) = news
        self._record_id = entries[-1][0].decode()
        now_s = seconds + 1e-6 * microseconds
        read = [self._read_happening(raw_id, fields, now_s) for raw_id, fields in entries]
        return ordered(one for one in read if one is not None)

    def _read_happening(
        self, raw_id: bytes, fields: dict[bytes, bytes], now_s: float
    ) -> Dated | None:
        try:
            data, age_s = fields[b"happening"], float(fields[b"age_s"])
            if self._signer is not None:
                self._signer.check_appended(data, place=_record_of(self._vehicle))
            happening = self._happening_decoder.decode(data)
            waited_s = max(0.0, now_s - int(raw_id.partition(b"-")[0]) / 1e3)
        except (NotGenuine, KeyError, ValueError, OverflowError, RecursionError):
            return None
        if not math.isfinite(age_s) or not math.isfinite(happening.t_s):
            return None
        return Dated(happening, waited_s + age_s)

    def _next(
        self, last_id: str, block_ms: int
    ) -> tuple[str, tuple[Snapshot, float] | None] | None:
        """Wait for the entry after `last_id`; return its id and content, None if none comes.

        In one answer, with the snapshot once in it: a radio link has no bytes to spare.
        """
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.xread({self._key: last_id}, count=1, block=block_ms)
            pipe.time()  # answered after the wait
            news, (seconds, microseconds) = pipe.execute()
        if not news:
            return None
        ((raw_id, fields),) = news[0][1]
        return raw_id.decode(), self._read(raw_id, fields, seconds + 1e-6 * microseconds)

    def _newest(self) -> tuple[str | None, tuple[Snapshot, float] | None]:
        """Return the newest entry's id and its content, None for what is not there."""

        def ask() -> Any:
            with self._redis.pipeline(transaction=True) as pipe:
                pipe.xrevrange(self._key, count=1 if self._signer is None else LOOK_BACK)
                pipe.time()
                return pipe.execute()

        entries, (seconds, microseconds) = self._ask(ask)
        if not entries:
            return None, None
        now_s = seconds + 1e-6 * microseconds
        read = [self._read(raw_id, fields, now_s) for raw_id, fields in entries]
        found = [one for one in read if one is not None]
        # The one sent last, whatever was put there again since.
        return entries[0][0].decode(), min(found, key=lambda one: one[1], default=None)

    def _read(
        self, raw_id: bytes, fields: dict[bytes, bytes], now_s: float
    ) -> tuple[Snapshot, float] | None:
        """Return the snapshot of an entry, and its age; None if it cannot be read.

        What is dated in the future was sent before the broker's clock went back: it is old.
        """
        try:
            waited_s = max(0.0, now_s - int(raw_id.partition(b"-")[0]) / 1e3)
            age_s = float(fields[b"age_s"])
            if self._signer is not None:
                waited_s = abs(now_s - int(fields[b"sent_ms"]) / 1e3)
                place = _place(
                    self._vehicle, fields[b"age_s"].decode(), fields[b"sent_ms"].decode()
                )
                self._signer.check_appended(fields[b"snapshot"], place=place)
            snapshot = self._decoder.decode(fields[b"snapshot"])
        except (NotGenuine, KeyError, ValueError, OverflowError, RecursionError):
            return None
        if not math.isfinite(age_s):
            return None
        return snapshot, waited_s + age_s

    def _ask(self, question: Callable[[], Any]) -> Any:
        return _ask(question, self._url)

    def close(self) -> None:
        _close(self._redis)


def signer_of(keys: Sequence[str] | None) -> Signer | None:
    """Return what signs and checks with `keys`; None without."""
    return None if keys is None else Signer(keys)


def _record_of(vehicle: str) -> str:
    """Return what the signature of a happening is for, beside it."""
    return f"timeline of {vehicle}"


def _place(vehicle: str, age_s: str, sent_ms: str) -> str:
    """Return what the signature of a snapshot is for, beside the snapshot."""
    return f"telemetry of {vehicle}, {age_s} s old at {sent_ms}"


def vehicles(url: str) -> dict[str, float]:
    """Return the ships that have published on this broker lately, and how many seconds ago.

    Raises LinkError if the broker does not answer.
    """

    def ask() -> dict[str, float]:
        redis = _connect(url, timeout_s=READ_TIMEOUT_S)
        try:
            names = sorted(
                key.decode().removeprefix(KEY_PREFIX)
                for key in redis.scan_iter(match=KEY_PREFIX + "*", count=1000, _type="stream")
            )
            found = {}
            for name in names:
                newest = redis.xrevrange(stream_key(name), count=1)
                seconds, microseconds = redis.time()
                if newest:
                    sent_s = int(newest[0][0].partition(b"-")[0]) / 1e3
                    found[name] = max(0.0, seconds + 1e-6 * microseconds - sent_s)
            return found
        finally:
            _close(redis)

    found: dict[str, float] = _ask(ask, url)
    return found


def _ask(question: Callable[[], Any], url: str) -> Any:
    """Ask the broker; raise NotAuthorised if it refuses, LinkError if it does not answer."""
    from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError

    try:
        return question()
    except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
        raise NotAuthorised(f"broker {hide_password(url)} refuses: {error}") from error
    except _link_errors() as error:
        raise LinkError(f"no broker at {hide_password(url)}: {error}") from error


def _connect(url: str, *, timeout_s: float) -> Any:
    """Return a redis-py client that fails fast: one try, short timeouts, one connection."""
    return open_redis(url, timeout_s=timeout_s, retries=0)


def _link_errors() -> tuple[type[Exception], ...]:
    from redis.exceptions import RedisError

    return (RedisError, OSError)


def _close(redis: Any) -> None:
    redis.close()
