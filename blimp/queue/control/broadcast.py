"""The emergency lane: past queues, prefetch and executors, straight to a handler.

A fanout exchange (PUBLISH in Redis) that a worker hears on a thread and a connection of its
own. It is not stored: the sender repeats itself, with the same id, until the confirmation
stands as a result under that id.
"""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.errors import LinkError, MessageError, Refused, ResultError
from blimp.queue.control.listener import BroadcastConnection
from blimp.queue.extensions import Broadcast, BroadcastHandler
from blimp.queue.protocol.fault import fault_of
from blimp.queue.protocol.message import MAX_NAME_LENGTH
from blimp.queue.protocol.record import Record, State
from blimp.queue.publish.revocations import BROADCAST as REVOKE

if TYPE_CHECKING:
    from blimp.queue.app import TaskApp

REMEMBERED = 256
LOG_LENGTH = 200
WAKE = "blimp.wake"  # heard by all, and nobody's: it only ends a listener's wait


_decoder = msgspec.json.Decoder(Broadcast)


class BroadcastListener:
    """Listens at every broker there is: a stop may come by another than the one in use.

    on_revoke: called with the id of a revoked task, and whether it is to be ended.
    on_command: called with the broker's URL and a remote-control command; None to hear none.
    """

    def __init__(
        self,
        *,
        app: TaskApp,
        worker: str,
        on_revoke: Callable[[str, bool], None],
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
        self._connections = [
            BroadcastConnection(
                app=app,
                url=url,
                worker=worker,
                on_body=partial(self._take, url),
                on_unheard=self._not_heard,
                on_command=None if on_command is None else partial(on_command, url),
                log=log,
            )
            for url in app.brokers.urls
        ]
        self._started = False

    def start(self) -> None:
        self._started = True
        for connection in self._connections:
            connection.start()

    def wait_listening(self, timeout_s: float) -> bool:
        """Wait until it hears at the broker in use; say whether it does."""
        if not self._started:
            return False
        current = self._app.brokers.current
        (connection,) = (
            connection for connection in self._connections if connection.url == current
        )
        return connection.listening.wait(timeout_s)

    def close(self) -> None:
        """Listen no more. Idempotent."""
        for connection in self._connections:
            connection.close()
        if not self._started:
            return
        self._started = False
        if not self._app.capabilities.keeps_broadcasts:
            with contextlib.suppress(LinkError):  # it wakes by itself, only later
                self._app.broadcast(WAKE)
        for connection in self._connections:
            connection.wait_closed()

    def _take(self, url: str, body: bytes | str) -> None:
        """Handle one broadcast; never raises but for a lost link to kombu."""
        try:
            broadcast = _decoder.decode(body)
            if not 0 < len(broadcast.id) <= MAX_NAME_LENGTH:
                raise msgspec.ValidationError(f"id: must have 1 to {MAX_NAME_LENGTH} letters")
            self._check_signature(broadcast)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, MessageError) as error:
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
        with self._acting:
            record = self._confirmed.get(broadcast.id)
            if record is None:
                record = self._act(broadcast, handler)
        self._confirm(record, url)

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

    def _confirm(self, record: Record, url: str) -> None:
        """Confirm where it was heard: there its sender looks."""
        results = self._app.results
        if results is None:
            return
        try:
            try:
                results.store(record, at=url)
            except ResultError as error:  # it was done: what it returned matters less than that
                self._log.error("broadcast result", id=record.id, reason=str(error)[:LOG_LENGTH])
                results.store(msgspec.structs.replace(record, result={}), at=url)
        except (
            LinkError,
            ResultError,
        ) as error:  # its sender repeats itself, and is told then
            self._log.warning("confirmation not written", id=record.id, reason=str(error))
