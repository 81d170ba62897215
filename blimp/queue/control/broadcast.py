"""Emergency broadcasts: past queues, prefetch and pools, straight to a handler.

A fanout exchange (PUBLISH in Redis) that a worker consumes on a thread and a connection of its
own, at every broker of a list. The sender repeats itself with the same id until the
confirmation, which is a result of that id, is there.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from kombu import Consumer, Exchange, Queue

from blimp.errors import LinkError, MessageError, Refused, ResultError
from blimp.queue.brokers.kombu_consumer import guard_channel
from blimp.queue.control.command import EXCHANGE, CommandMailbox, connected
from blimp.queue.extensions import Broadcast, BroadcastHandler
from blimp.queue.protocol.message import MAX_NAME_LENGTH
from blimp.queue.protocol.record import Record, State, fault_of
from blimp.queue.publish.taken_back import BROADCAST as REVOKE

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp
    from blimp.queue.retry import Outage

MAX_CONFIRMED = 256
LOG_LENGTH = 200
WAKE = "blimp.wake"  # received by all workers, it only ends a consumer's wait
CLOSE_S = 2.0
FIRST_DRAIN_S = 0.001

_decoder = msgspec.json.Decoder(Broadcast)


class BroadcastReceiver:
    """Consumes at every broker there is: a stop may come by another than the one in use.

    on_revoke: called with the id of a revoked task, and whether to terminate it.
    on_command: called with the broker's URL and kombu's message of a remote-control command;
        None to receive none.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        on_revoke: Callable[[str, bool], object],
        on_command: Callable[[str, Any], None] | None = None,
        log: Any,
    ) -> None:
        self._app = app
        self._worker = worker
        self._on_revoke = on_revoke
        self._log = log
        self._acting = threading.Lock()
        self._confirmed: OrderedDict[str, Record] = OrderedDict()
        self.malformed = 0
        self._consumers = [
            BroadcastConsumer(
                app=app,
                url=url,
                worker=worker,
                on_body=partial(self._receive, url),
                on_unreadable=self._unreadable,
                on_command=None if on_command is None else partial(on_command, url),
                log=log,
            )
            for url in app.brokers.urls
        ]
        self._started = False

    def start(self) -> None:
        self._started = True
        for consumer in self._consumers:
            consumer.start()

    def wait_listening(self, timeout_s: float) -> bool:
        """Wait until broadcasts of the broker in use arrive; return whether they do."""
        if not self._started:
            return False
        current = self._app.brokers.current
        (consumer,) = (one for one in self._consumers if one.url == current)
        return consumer.listening.wait(timeout_s)

    def close(self) -> None:
        """Receive nothing more. Idempotent."""
        for consumer in self._consumers:
            consumer.close()
        if not self._started:
            return
        self._started = False
        if not self._app.capabilities.keeps_broadcasts:
            with contextlib.suppress(LinkError):  # its wait ends by itself, only later
                self._app.broadcast(WAKE)
        for consumer in self._consumers:
            consumer.wait_closed()

    def _receive(self, url: str, body: bytes | str) -> None:
        """Handle one broadcast; never raises except for a lost connection."""
        try:
            broadcast = _decoder.decode(body)
            if not 0 < len(broadcast.id) <= MAX_NAME_LENGTH:
                raise msgspec.ValidationError(f"id: must have 1 to {MAX_NAME_LENGTH} letters")
            self._check_signature(broadcast)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MessageError) as error:
            self._unreadable(error)
            return
        if broadcast.name == WAKE:
            return
        if broadcast.name == REVOKE:
            self._revoke(broadcast)
            return
        handler = self._app.broadcasts.get(broadcast.name)
        if handler is None:
            self.malformed += 1
            known = ", ".join(sorted(self._app.broadcasts)) or "none"
            self._log.error("broadcast unknown", name=broadcast.name, known=known)
            return
        with self._acting:
            record = self._confirmed.get(broadcast.id)
            if record is None:
                record = self._act(broadcast, handler)
        self._confirm(record, url)

    def _revoke(self, broadcast: Broadcast) -> None:
        id = broadcast.payload.get("id")
        if not isinstance(id, str):
            self._unreadable(MessageError("payload: must name the id of a task"))
            return
        self._on_revoke(id, broadcast.payload.get("terminate") is True)

    def _check_signature(self, broadcast: Broadcast) -> None:
        if self._app.signer is not None:
            self._app.signer.check_document(
                msgspec.structs.asdict(broadcast),
                broadcast.signature,
                place=self._app.emergency_exchange,
            )

    def _unreadable(self, error: Exception) -> None:
        self.malformed += 1
        self._log.error("broadcast unreadable", reason=str(error)[:LOG_LENGTH])

    def _act(self, broadcast: Broadcast, handler: BroadcastHandler) -> Record:
        pending = Record(
            id=broadcast.id, state=State.PROGRESS, name=broadcast.name, worker=self._worker
        )
        try:
            result = handler(broadcast)
        except Refused as error:
            record = msgspec.structs.replace(pending, state=State.REFUSED, fault=fault_of(error))
        except Exception as error:
            self._log.exception("broadcast", name=broadcast.name, id=broadcast.id)
            reason = f"{type(error).__name__}: {error}"
            return msgspec.structs.replace(pending, result={"fraction": 0.0, "reason": reason})
        else:
            if result is None:
                reason = "received; it could not be done yet"
                return msgspec.structs.replace(pending, result={"fraction": 0.0, "reason": reason})
            record = msgspec.structs.replace(pending, state=State.SUCCESS, result=result)
        self._log.info("broadcast", name=broadcast.name, id=broadcast.id, state=str(record.state))
        self._confirmed[broadcast.id] = record
        while len(self._confirmed) > MAX_CONFIRMED:
            self._confirmed.popitem(last=False)
        return record

    def _confirm(self, record: Record, url: str) -> None:
        """Store the confirmation at the broker it came by: its sender looks there."""
        results = self._app.results
        if results is None:
            return
        try:
            try:
                results.store(record, at=url)
            except ResultError as error:  # it was done: that matters more than what it returned
                self._log.error("broadcast result", id=record.id, reason=str(error)[:LOG_LENGTH])
                results.store(msgspec.structs.replace(record, result={}), at=url)
        except (LinkError, ResultError) as error:  # the sender repeats, and is answered then
            self._log.warning("confirmation not stored", id=record.id, reason=str(error))


class BroadcastConsumer:
    """One thread that consumes broadcasts at one broker until closed. Close is idempotent.

    It connects again after any error: a worker that receives no broadcast cannot be stopped.

    on_body: called with what came. on_unreadable: called with why something could not be read.
    on_command: called with kombu's message of a remote-control command; None to receive none.
    listening: set while broadcasts arrive.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        url: str,
        worker: str,
        on_body: Callable[[bytes | str], None],
        on_unreadable: Callable[[Exception], None],
        on_command: Callable[[Any], None] | None,
        log: Any,
    ) -> None:
        self.url = url
        self._app = app
        self._worker = worker
        self._on_body = on_body
        self._on_unreadable = on_unreadable
        self._on_command = on_command
        self._log = log
        self._transport: Any = None
        self._seen: dict[str, str] = {}  # by exchange, the last entry, if the broker keeps them
        self._closed = threading.Event()
        self.listening = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="emergency", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End soon; `wait_closed` waits for the thread."""
        self._closed.set()
        transport = self._transport
        if transport is not None:
            transport.interrupt()

    def wait_closed(self) -> None:
        if self._thread.is_alive():
            self._thread.join(timeout=CLOSE_S)

    def _serve(self) -> None:
        outage = self._app.outage("emergency broadcasts lost", log=self._log, brokers=1)
        while not self._closed.is_set():
            try:
                self._consume(outage)
            except Exception as error:
                self.listening.clear()
                self._closed.wait(outage.failed(error))

    def _consume(self, outage: Outage) -> None:
        """Consume until the broker is lost."""
        options: dict[str, Any] = {}
        has_entries = self._app.capabilities.keeps_broadcasts
        if has_entries:
            options["resume"] = self._seen
            options["on_undecodable"] = lambda _, __, error: self._on_unreadable(error)
        with (
            connected(self._app, self.url, beats=True, **options) as connection,
            contextlib.ExitStack() as consuming,
        ):
            channel = connection.channel()
            guard_channel(channel)
            # Emergencies first: of much that waits, they are read before commands.
            for queue, on_message in self._queues():
                consuming.enter_context(
                    Consumer(channel, queues=[queue], on_message=on_message, no_ack=True)
                )
            self._drain(connection, timeout_s=FIRST_DRAIN_S)  # subscribes first
            self._transport = connection.transport if has_entries else None
            self.listening.set()
            outage.over()
            try:
                while not self._closed.is_set():
                    self._drain(connection, timeout_s=self._app.longest_wait_s)
                    if connection.supports_heartbeats:
                        connection.heartbeat_check()
            finally:
                self._transport = None
        self.listening.clear()

    def _queues(self) -> list[tuple[Queue, Callable[[Any], None]]]:
        """Return what to consume, the most urgent first.

        Names are fixed, so that a killed worker leaves no binding that its successor does not
        use. RabbitMQ deletes an exclusive queue with its connection, but may notice the end of
        that late: there each connection has names of its own.
        """
        exclusive = not self._app.capabilities.exclusive_names
        suffix = f".{uuid.uuid4().hex}" if exclusive else ""
        fanout = Exchange(self._app.emergency_exchange, type="fanout", durable=False)
        emergency = Queue(
            f"{fanout.name}.{self._worker}{suffix}",
            exchange=fanout,
            durable=False,
            exclusive=exclusive,
        )
        queues: list[tuple[Queue, Callable[[Any], None]]] = [(emergency, self._receive_body)]
        if self._on_command is not None:
            mailbox: Any = CommandMailbox(self._app, exclusive=exclusive)
            commands = mailbox.get_queue(self._worker)
            commands.name += suffix
            queues.append((commands, self._receive_command))
        return queues

    def _receive_body(self, message: Any) -> None:
        self._mark_seen(self._app.emergency_exchange, message)  # if it fails, too
        self._on_body(message.body)

    def _receive_command(self, message: Any) -> None:
        self._mark_seen(EXCHANGE, message)
        assert self._on_command is not None
        self._on_command(message)

    def _mark_seen(self, exchange: str, message: Any) -> None:
        entry = message.delivery_info.get("entry")
        if entry is not None:
            self._seen[exchange] = entry

    def _drain(self, connection: Any, *, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            connection.drain_events(timeout=timeout_s)
