"""The pilot's heartbeat: from the ground through the broker to the worker, twice a second.

The worker's connection to the broker says nothing of the pilot's: a broker on board answers
while the radio is dead. So each program of a pilot adds to a stream of the ship, and the worker
passes on what is new with its own heartbeat. The ship judges its age when it arrives there
(`blimp/control/pilot_link.py`).

It counts only if it is fresh by the broker's clock, meant for this boot, of the pilot who has
control (of anybody while nobody has) and, where there is a key, signed.

Nothing follows a goodbye, so none may be lost: the ship would miss a program that has ended. What
does not reach the ship now is passed on at the next look. A goodbye of any age and pilot ends its
own session; a late one says nothing of the others.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from msgspec import Meta

from blimp.closing import Closing
from blimp.errors import LeaseError, LinkError, MessageError, NotAuthorised, NotInControl
from blimp.nesting import shallow
from blimp.reading import ready
from blimp.tasks.client import named_boot, telemetry_key
from blimp.types import Heartbeat, Snapshot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blimp.clock import Clock
    from blimp.queue.protocol.signing import Key, Signer
    from blimp.queue.redis.client import RedisServer
    from blimp.tasks.authority import Authority

PERIOD_S = 0.5
ANSWER_S = 1.0  # how long a program waits for its broker, and so for its goodbye at the end
FRESH_MS = 3000
AHEAD_MS = 1000
KEPT_ENTRIES = 1000  # what 16 programs send while a worker restarts for half a minute
READ_ENTRIES = 32  # at once: a stranger's may be as large as the server takes
KEPT_S = 60
MAX_BYTES = 1024
BOOT_EVERY = 10  # heartbeats between two looks at which flight process is there
NAME = "heartbeat"


def heartbeat_key(vehicle: str) -> str:
    return f"blimp:heartbeat:{vehicle}"


@ready
class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """What is signed. issued_ms: on the broker's clock. token: of control, None without."""

    sequence: Annotated[int, Meta(ge=0)]
    issued_ms: int
    token: int | None = None
    boot_id: Annotated[str, Meta(max_length=64)] = ""
    ends: bool = False


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the stream: a signed document, as a broadcast. id: of the session."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    payload: dict[str, Any]
    name: str = NAME
    signature: str = ""


_documents = msgspec.json.Decoder(_Document)


class HeartbeatSender(Closing):
    """The ground's end: a thread that sends until it is closed, and then says goodbye.

    token: returns that of the pilot's control of the ship, None without. say: called once
    if the broker refuses. Without a broker it tries again; the ship notices. present: whether the
    pilot behind this program is there; without it nothing is sent, no goodbye either.
    """

    def __init__(
        self,
        *,
        broker: str,
        vehicle: str,
        token: Callable[[], int | None],
        clock: Clock,
        signing_key: Key | Sequence[Key] | None = None,
        say: Callable[[str], object] = lambda _: None,
        present: Callable[[], bool] = lambda: True,
    ) -> None:
        from blimp.queue.protocol.signing import Signer
        from blimp.queue.redis.client import RedisServer

        self._server = RedisServer(broker, timeout_s=ANSWER_S)
        self._signer = None if signing_key is None else Signer(signing_key)
        self._key = heartbeat_key(vehicle)
        self._telemetry = telemetry_key(vehicle)
        self._token = token
        self._clock = clock
        self._say = say
        self._present = present
        self._session = secrets.token_hex(8)
        self._sequence = 0
        self._boot_id = ""
        self._ahead_ms: float | None = None  # the broker's clock, before our monotonic one
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Say goodbye, if the broker answers: silence then means that nobody is missed."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=2.0 * ANSWER_S)
        self._server.close()

    def _run(self) -> None:
        ends = False
        while not ends:
            ends = self._closing.is_set()
            try:
                if self._present():
                    self.send(ends=ends)
            except NotAuthorised as error:
                self._say(f"the ship does not learn that your link is alive: {error}")
                return
            except LinkError:
                self._ahead_ms = None  # what lay in the connection for long is not fresh any more
            self._closing.wait(PERIOD_S)

    def send(self, *, ends: bool) -> None:
        """Send one heartbeat; from one thread. Raises LinkError."""
        with self._server.link():
            if self._ahead_ms is None or self._sequence % BOOT_EVERY == 0 or not self._boot_id:
                self._look_around()
            payload = msgspec.to_builtins(
                _Content(
                    sequence=self._sequence,
                    issued_ms=int(1e3 * self._clock.now_s() + (self._ahead_ms or 0.0)),
                    token=self._token(),
                    boot_id=self._boot_id,
                    ends=ends,
                )
            )
            self._sequence += 1
            document = {"id": self._session, "name": NAME, "payload": payload}
            if self._signer is not None:
                signature = self._signer.sign_document(document, place=self._key)
                document["signature"] = signature
            with self._server.client.pipeline(transaction=False) as pipe:
                entry: Any = {b"heartbeat": msgspec.json.encode(document)}
                pipe.xadd(self._key, entry, maxlen=KEPT_ENTRIES, approximate=True)
                pipe.expire(self._key, KEPT_S)
                pipe.time()
                self._note_time(pipe.execute()[-1])

    def _look_around(self) -> None:
        """Ask for the broker's time, and for the boot of the flight process that is there."""
        with self._server.client.pipeline(transaction=False) as pipe:
            pipe.xrevrange(self._telemetry, count=1)
            pipe.time()
            newest, time = pipe.execute()
        self._note_time(time)
        self._boot_id = named_boot(newest)

    def _note_time(self, time: tuple[int, int]) -> None:
        self._ahead_ms = _ms(time) - 1e3 * self._clock.now_s()


class Mailbox(Protocol):
    """What the relay uses of `blimp.link.mailbox.MailboxClient`."""

    def relay(self, heartbeat: Heartbeat) -> bool: ...

    def snapshot(self) -> Snapshot | None: ...


class HeartbeatRelay:
    """The worker's end. Call `look` about once a second, from one thread.

    signer: checks each heartbeat; None to accept unsigned ones.
    """

    def __init__(
        self,
        *,
        link: RedisServer,
        vehicle: str,
        authority: Authority,
        mailbox: Mailbox,
        signer: Signer | None,
    ) -> None:
        self._link = link
        self._key = heartbeat_key(vehicle)
        self._authority = authority
        self._mailbox = mailbox
        self._signer = signer
        self._last = b""
        self.refused = 0
        self.last_refused = ""

    def look(self) -> None:
        """Pass on what counts of what came since the last call, oldest first.

        It ends early if the broker or the flight process does not answer: the next goes on there.
        """
        authorities: dict[int | None, int] = {}
        with suppress(LinkError):
            news, now_ms = self._link.ask(self._read)
            for entry, data in reversed(news):
                try:
                    heartbeat = self._check(data, now_ms, authorities)
                except (MessageError, NotInControl, LeaseError) as error:
                    self.refused += 1
                    self.last_refused = str(error)
                else:
                    if not self._mailbox.relay(heartbeat):
                        return
                self._last = entry

    def _read(self, client: Any) -> tuple[list[tuple[bytes, bytes]], float]:
        """Return the new entries, newest first, and the time. It keeps no more than it can use."""
        news, newest = list[tuple[bytes, bytes]](), b"+"
        while len(news) < KEPT_ENTRIES:
            with client.pipeline(transaction=False) as pipe:
                pipe.xrevrange(self._key, max=newest, count=READ_ENTRIES)
                pipe.time()
                page, time = pipe.execute()
            new = list(takewhile(lambda one: one[0] != self._last, page))
            news += [(id, fields.get(b"heartbeat", b"")[: MAX_BYTES + 1]) for id, fields in new]
            if len(new) < READ_ENTRIES:
                break
            newest = b"(" + new[-1][0]
        return news, _ms(time)

    def _check(self, data: bytes, now_ms: float, authorities: dict[int | None, int]) -> Heartbeat:
        """Return what to pass on. Raises MessageError for what does not count."""
        try:
            if len(data) > MAX_BYTES:
                raise MessageError(f"heartbeat: the limit is {MAX_BYTES} bytes")
            document = _documents.decode(shallow(data))
            if self._signer is not None:
                fields = msgspec.structs.asdict(document)
                self._signer.check_document(fields, document.signature, place=self._key)
            content = msgspec.convert(document.payload, _Content)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise MessageError(f"heartbeat: {error}") from error
        is_fresh = -AHEAD_MS <= now_ms - content.issued_ms <= FRESH_MS
        if not (is_fresh or content.ends):
            raise MessageError(
                f"heartbeat: {(now_ms - content.issued_ms) / 1e3:.1f} s old on the broker's "
                f"clock, the limit is {FRESH_MS / 1e3:g} s"
            )
        snapshot = self._mailbox.snapshot()
        present = "" if snapshot is None else snapshot.boot_id
        # A goodbye counts for any boot: the new flight process may have heard the session begin.
        named = content.boot_id or self._signer is not None
        if content.boot_id != present and named and not content.ends:
            raise MessageError(
                "heartbeat: the flight process was restarted since it was sent (boot "
                f"{content.boot_id!r}, now {present!r})"
            )
        token, authority = content.token, 0
        try:
            authority = authorities[token] = authorities.get(token) or self._authority.admit(token)
        except NotInControl:
            if not content.ends:
                raise
            is_fresh = False
        return Heartbeat(
            session=document.id,
            sequence=content.sequence,
            authority=authority,
            ends=content.ends,
            waited_s=0.0 if is_fresh else inf,
        )


def _ms(time: tuple[int, int]) -> float:
    """Return a server's answer to TIME in milliseconds."""
    return 1e3 * int(time[0]) + 1e-3 * int(time[1])
