"""The emergency lane: past queues, prefetch and executors, straight to a handler.

A fanout exchange (PUBLISH in Redis) that a worker hears on a thread and a connection of its
own. It is not stored: the sender repeats itself, with the same id, until the confirmation
stands as a result under that id.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import LinkError, MessageError, Refused
from blimp.tasks.carrier import AMQP, STOCK, STREAMS, connect, longest_wait_s, open_connection
from blimp.tasks.job import fault_of
from blimp.tasks.message import MAX_NAME_LENGTH
from blimp.tasks.results.record import Record, State
from blimp.tasks.revocation import BROADCAST as REVOKE

if TYPE_CHECKING:
    from blimp.tasks.app import TaskApp
    from blimp.tasks.outage import Outage

REMEMBERED = 256
CLOSE_S = 2.0
LOG_LENGTH = 200
WAKE = "blimp.wake"  # heard by all, and nobody's: it only ends a listener's wait


class Broadcast(msgspec.Struct, frozen=True, kw_only=True):
    """One emergency message as it came. id: the same each time it is repeated."""

    id: str
    name: str
    payload: dict[str, Any] = msgspec.field(default_factory=dict)
    signature: str = ""


# Returns what confirms it, None where it could not act yet. Raises Refused with a reason.
BroadcastHandler = Callable[[Broadcast], dict[str, Any] | None]

_decoder = msgspec.json.Decoder(Broadcast)


class BroadcastListener:
    """Listens on its own thread until closed; reconnects for ever. Close is idempotent.

    on_revoke: called with the id of a revoked task, and whether it is to be ended.
    """

    def __init__(
        self, *, app: TaskApp, worker: str, on_revoke: Callable[[str, bool], None], log: Any
    ) -> None:
        self._app = app
        self._worker = worker
        self._on_revoke = on_revoke
        self._log = log
        self._confirmed: OrderedDict[str, Record] = OrderedDict()
        self._closed = threading.Event()
        self.listening = threading.Event()
        self.malformed = 0
        self._thread = threading.Thread(target=self._serve, name="emergency", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread.is_alive():
            with contextlib.suppress(LinkError):  # it wakes by itself, only later
                self._app.broadcast(WAKE)
            self._thread.join(timeout=CLOSE_S)

    def _serve(self) -> None:
        outage = self._app.outage("emergency lane lost", log=self._log)
        while not self._closed.is_set():
            url = self._app.brokers.current
            try:
                self._listen(url, outage)
            except Exception as error:  # whatever it was, deafness is worse
                self.listening.clear()
                self._closed.wait(outage.failed(error))

    def _listen(self, url: str, outage: Outage) -> None:
        """Listen at one broker, until it is lost or another is in use."""
        from kombu import Consumer, Exchange, Queue

        fanout = Exchange(self._app.emergency_exchange, type="fanout", durable=False)
        # One fixed name: a killed worker then leaves no binding that its successor does not use.
        # RabbitMQ ends a connection's own queue with it, but may notice late: a name each there.
        exclusive = self._app.transport == AMQP
        queue = Queue(
            f"{fanout.name}.{self._worker}" + (f".{uuid.uuid4().hex}" if exclusive else ""),
            exchange=fanout,
            durable=False,
            exclusive=exclusive,
        )
        stock = self._app.transport == STOCK
        options: dict[str, Any] = {}
        if self._app.transport == STREAMS:
            options["on_undecodable"] = lambda _, __, error: self._not_heard(error)
        with open_connection(
            url,
            transport=self._app.transport,
            timeout_s=self._app.timeout_s,
            beats=True,
            **options,
        ) as connection:
            if stock:
                from blimp.tasks.stock import FanoutTransport  # megabytes, where it is not used

                connection.transport_cls = FanoutTransport
            connect(connection)
            channel = connection.channel()
            if stock:
                channel.on_unheard = self._not_heard
            with Consumer(
                channel,
                queues=[queue],
                on_message=lambda message: self._take(message.body),
                no_ack=True,
            ):
                self._drain(connection, self._subscribed)
                outage.over()
                while not self._closed.is_set() and url == self._app.brokers.current:
                    self._drain(connection, None)
                    if connection.supports_heartbeats:
                        connection.heartbeat_check()
        self.listening.clear()

    def _subscribed(self) -> None:
        self.listening.set()

    def _drain(self, connection: Any, after_first: Callable[[], None] | None) -> None:
        """Hear for a while. The first call subscribes on its way in and returns at once."""
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=0.001 if after_first else longest_wait_s(self._app))
        if after_first is not None:
            after_first()

    def _take(self, body: bytes | str) -> None:
        """Handle one broadcast; never raises but for a lost link to kombu."""
        try:
            broadcast = _decoder.decode(body)
            if not 0 < len(broadcast.id) <= MAX_NAME_LENGTH:
                raise msgspec.ValidationError(f"id: must have 1 to {MAX_NAME_LENGTH} letters")
            self._check_signature(broadcast)
        except (msgspec.DecodeError, UnicodeDecodeError, MessageError) as error:
            self._not_heard(error)
            return
        if broadcast.name == WAKE:
            return
        if broadcast.name == REVOKE:
            self._hear_revocation(broadcast)
            return
        handler = self._app.broadcasts.get(broadcast.name)
        if handler is None:
            self.malformed += 1
            known = ", ".join(sorted(self._app.broadcasts)) or "none"
            self._log.error("broadcast unknown", name=broadcast.name, known=known)
            return
        record = self._confirmed.get(broadcast.id)
        if record is None:
            record = self._act(broadcast, handler)
        self._confirm(record)

    def _hear_revocation(self, broadcast: Broadcast) -> None:
        id = broadcast.payload.get("id")
        if not isinstance(id, str):
            self._not_heard(MessageError("payload: must name the id of a task"))
            return
        self._on_revoke(id, broadcast.payload.get("terminate") is True)

    def _check_signature(self, broadcast: Broadcast) -> None:
        if self._app.signer is not None:
            self._app.signer.check_document(
                msgspec.structs.asdict(broadcast),
                broadcast.signature,
                place=self._app.emergency_exchange,
            )

    def _not_heard(self, error: Exception) -> None:
        self.malformed += 1
        self._log.error("broadcast unreadable", reason=str(error)[:LOG_LENGTH])

    def _act(self, broadcast: Broadcast, handler: BroadcastHandler) -> Record:
        blank = Record(
            id=broadcast.id, state=State.PROGRESS, name=broadcast.name, worker=self._worker
        )
        try:
            result = handler(broadcast)
        except Refused as error:
            record = msgspec.structs.replace(blank, state=State.REFUSED, fault=fault_of(error))
        except Exception as error:
            self._log.exception("broadcast", name=broadcast.name, id=broadcast.id)
            reason = f"{type(error).__name__}: {error}"
            return msgspec.structs.replace(blank, result={"fraction": 0.0, "reason": reason})
        else:
            if result is None:
                reason = "heard; it could not be done yet"
                return msgspec.structs.replace(blank, result={"fraction": 0.0, "reason": reason})
            record = msgspec.structs.replace(blank, state=State.SUCCESS, result=result)
        self._log.info("broadcast", name=broadcast.name, id=broadcast.id, state=str(record.state))
        self._confirmed[broadcast.id] = record
        while len(self._confirmed) > REMEMBERED:
            self._confirmed.popitem(last=False)
        return record

    def _confirm(self, record: Record) -> None:
        if self._app.results is None:
            return
        try:
            self._app.results.store(record)
        except LinkError as error:  # the sender repeats itself, and is confirmed then
            self._log.warning("confirmation not written", id=record.id, reason=str(error))
