"""Remote control of one worker: reads, checks, runs and answers commands.

Tested by test_extension.py.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import TYPE_CHECKING, Any

from blimp.errors import BlimpError, MessageError
from blimp.queue.broadcast.listener import EXCHANGE
from blimp.queue.brokers.base import Exchange
from blimp.queue.celery.control.command import Command, CommandContext, is_for, read_command
from blimp.queue.celery.control.handlers import CHANGE_COMMANDS, INSPECT_COMMANDS
from blimp.queue.extensions import ControlCommand
from blimp.queue.options import ALL
from blimp.queue.protocol.message import to_json
from blimp.queue.protocol.signing import FRESH_S

if TYPE_CHECKING:
    from blimp.queue.broadcast.receiver import ControlMessage
    from blimp.queue.worker.worker import Worker

LOG_LENGTH = 200
REPLY_NAME = re.compile(r"reply\.[\w.-]{1,100}\.pidbox")
MAX_TICKETS = 4096
MAX_CLOCK = 2**53


class RemoteControl:
    """Runs and answers commands. One thread at a time.

    revoke, started_s: see CommandContext.
    """

    def __init__(
        self, worker: Worker, *, revoke: Callable[[str, bool], str], started_s: float
    ) -> None:
        self._worker = worker
        self._app = worker.app
        self._log = worker.log
        self._context = CommandContext(worker=worker, revoke=revoke, started_s=started_s)
        self._commands: dict[str, ControlCommand] = {}
        self._tickets: OrderedDict[str, None] = OrderedDict()  # of signed commands that ran
        for table, is_change in ((INSPECT_COMMANDS, False), (CHANGE_COMMANDS, True)):
            for name, function in table.items():
                own = partial(function, self._context)
                self._commands[name] = ControlCommand(function=own, is_change=is_change)
        worker.load_idle()
        for extension in worker.extensions:
            self._commands |= extension.commands

    def handle(self, message: ControlMessage) -> None:
        """Run one command if this worker is meant, and answer if an answer is wanted."""
        if isinstance(message.clock, int) and 0 <= message.clock < MAX_CLOCK:
            self._worker.logical_clock.adjust(message.clock)
        app, name = self._app, self._worker.name
        try:
            command = read_command(message.body, content_type=message.content_type)
            if not is_for(command, worker=name, app=app.name, signer=app.signer):
                return
        except (MessageError, RecursionError) as error:  # this thread must go on
            self._log.error("remote command unreadable", reason=str(error)[:LOG_LENGTH])
            return
        reply = self._run(command)
        if command.reply_to is None:
            return
        try:
            self._reply(command, reply, url=message.url)
        except Exception as error:  # this caller gets no answer; the next one may
            fields = {"command": command.method[:LOG_LENGTH], "reason": str(error)[:LOG_LENGTH]}
            self._log.warning("remote command unanswered", **fields)

    def _run(self, command: Command) -> Any:
        """Run it; return the answer, `{"error": …}` if it was not done."""
        name = command.method
        arguments = {} if command.arguments is None else command.arguments
        try:
            found = self._commands.get(name)
            if found is None:
                known = ", ".join(sorted(self._commands))
                raise MessageError(f"{KeyError(name[:80])!r}: no such command; there are: {known}")
            if found.is_change:
                self._check_allowed(command)
            if not isinstance(arguments, dict):
                raise MessageError(f"arguments are {type(arguments).__name__}, must be an object")
            signature(found.function).bind(**arguments)
            reply = found.function(**arguments)
        except (BlimpError, TypeError) as error:
            fields = {"command": name[:LOG_LENGTH], "reason": str(error)[:LOG_LENGTH]}
            self._log.warning("remote command refused", **fields)
            return {"error": str(error)}
        except Exception as error:
            self._log.exception("remote command", command=name)
            return {"error": repr(error)}
        if found.is_change:
            self._log.info("remote command", command=name, arguments=repr(arguments)[:LOG_LENGTH])
        return reply

    def _check_allowed(self, command: Command) -> None:
        """Raise MessageError for a change that needs a signature, and has no good one."""
        app = self._app
        if app.remote_control == ALL:
            return
        where = f"{command.method}: this worker only answers questions (remote_control='inspect')"
        if app.signer is None:
            raise MessageError(where)
        try:
            document = command.signed_part()
            app.signer.check_document(document, command.signature, place=EXCHANGE)
        except MessageError as error:
            raise MessageError(f"{where}, except for signed changes: {error}") from None
        sent_s, ticket = command.sent_s, command.ticket
        if sent_s is None or ticket is None:
            raise MessageError(f"{where}: a signed command needs a ticket, and when it was sent")
        age_s = app.broker_clock.now_s() - sent_s
        if not abs(age_s) <= FRESH_S:
            raise MessageError(f"{where}: it is {age_s:.0f} s old, the limit is {FRESH_S:.0f}")
        if age_s > app.clock.now_s() - self._context.started_s:  # its predecessor may have run it
            raise MessageError(f"{where}: it was sent before this worker started")
        if ticket in self._tickets:
            raise MessageError(f"{where}: this one was done already")
        self._tickets[ticket] = None
        while len(self._tickets) > MAX_TICKETS:
            self._tickets.popitem(last=False)

    def _reply(self, command: Command, reply: Any, *, url: str) -> None:
        assert command.reply_to is not None
        to, name = command.reply_to, self._worker.name
        if not REPLY_NAME.fullmatch(to.exchange):
            raise MessageError(f"reply exchange {to.exchange!r:.80}: must be reply.NAME.pidbox")
        body = to_json({name: reply})
        if len(body) > self._app.limit_bytes:
            reason = f"the answer is {len(body)} bytes: the limit is {self._app.limit_bytes}"
            body = to_json({name: {"error": reason}})
        self._app.publisher.notify(
            body,
            exchange=Exchange(to.exchange, "direct", durable=False),
            routing_key=to.routing_key,
            headers={"ticket": command.ticket, "clock": self._worker.logical_clock.forward()},
            at=url,
        )
