"""Bad commands, commands without a caller, and a flood: the worker goes on."""

import errno
import json
import os
import sys
import threading
import zlib
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

import msgspec
import pytest
from kombu import Exchange, Producer

from blimp.errors import ConfigError, MessageError
from blimp.queue import TaskApp
from blimp.queue.broadcast.listener import EXCHANGE
from blimp.queue.celery import control
from blimp.queue.celery.control import remote_control
from blimp.queue.celery.control.command import Command, is_for, read_command
from blimp.queue.celery.control.command_sender import open_connection
from blimp.queue.celery.control.handlers import INSPECT_COMMANDS
from blimp.queue.extensions import Broadcast
from blimp.queue.options import remote_control_mode
from tests.queue.celery.control.conftest import Ask
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working

JSON = "application/json"
PIDBOX = Exchange("celery.pidbox", type="fanout", durable=False)


class Sender:
    """Publishes any body on the pidbox."""

    def __init__(self, app: TaskApp) -> None:
        self.connection = open_connection(app, app.broker)
        self._producer = Producer(self.connection.channel())

    def send(
        self, body: bytes, *, content_type: str = JSON, exchange: Exchange = PIDBOX, **headers: Any
    ) -> None:
        self._producer.publish(
            body,
            exchange=exchange,
            declare=[exchange],
            content_type=content_type,
            content_encoding="utf-8",
            headers=headers,
        )

    def ping(self, **fields: Any) -> None:
        self.send(json.dumps({"method": "ping", **fields}).encode())


UNREADABLE = (
    b"",
    b"no json",
    b"[]",
    b"{}",
    b'{"method": 3}',
    b'{"method": "ping", "destination": "worker"}',
    b'{"method": "ping", "reply_to": "me"}',
    b'{"method": "ping", "ticket": []}',
    b'{"method": "' + b"[" * 300_000 + b'"}',
    b'{"method": "ping", "arguments": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"method": "ping", "pattern": "a", "matcher": "pcre"}',
    b'{"method": "ping", "pattern": "x", "matcher": "none"}',
    b'\xff\xfe{"method": "ping"}',
)


def test_an_unreadable_command_is_logged_and_the_next_is_answered(app: TaskApp, ask: Ask) -> None:
    log = Silence()
    sender = Sender(app)
    with working(app, log=log), sender.connection:
        for body in UNREADABLE:
            sender.send(body)
        sender.send(b'{"method": "ping"}', content_type="application/x-python-serialize")
        sender.send(b'{"method": "ping"}', clock="late")
        sender.ping(arguments=[1])
        sender.ping(reply_to={"exchange": "", "routing_key": "tests"}, ticket="t")
        sender.ping(reply_to={"exchange": "reply.celery.pidbox", "routing_key": "gone"})
        assert ask("ping") == {"ok": "pong"}
    assert len(log.events("remote command unreadable")) == len(UNREADABLE) + 1
    (unanswered,) = log.events("remote command unanswered")
    assert "must be reply.NAME.pidbox" in unanswered["reason"]
    assert not log.events("emergency broadcasts lost")


@pytest.mark.parametrize("compression", ["application/x-gzip", "none that there is"])
@pytest.mark.parametrize("level", ["celery.pidbox", "emergency"])
def test_nothing_is_decompressed_and_broadcasts_still_arrive(
    app: TaskApp, ask: Ask, compression: str, level: str
) -> None:
    """A small body may decompress to more than the memory; an unknown one may end the link."""
    received = threading.Event()

    @app.on_broadcast("stop")
    def stop(_: Broadcast) -> dict[str, object]:
        received.set()
        return {}

    log, sender = Silence(), Sender(app)
    exchange = Exchange(level, type="fanout", durable=False)
    if level == "emergency":
        exchange = Exchange(app.emergency_exchange, type="fanout", durable=False)
    with working(app, log=log), sender.connection:
        sender.send(
            zlib.compress(b'{"method": "ping", "id": "i", "name": "stop"}'),
            exchange=exchange,
            compression=compression,
        )
        assert ask("ping") == {"ok": "pong"}
        wait_until(lambda: any("unreadable" in line[1] for line in log.lines), "it was not named")
        assert log.events("emergency broadcasts lost") == []
        assert not received.is_set()
        assert app.broadcast("stop").get(DEADLINE_S) == {}


def test_a_flood_is_dropped_and_broadcasts_still_arrive(
    app: TaskApp, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled = threading.Event()

    @app.on_broadcast("stop")
    def stop(broadcast: Broadcast) -> dict[str, object]:
        handled.set()
        return {"stopped": True}

    log, sender = Silence(), Sender(app)
    release, handler_busy = threading.Event(), threading.Event()

    def slow(*_: Any, **__: Any) -> dict[str, bool]:
        handler_busy.set()
        assert release.wait(DEADLINE_S)
        return {"ok": True}

    monkeypatch.setitem(INSPECT_COMMANDS, "clock", slow)
    with working(app, log=log), sender.connection:
        assert ask("ping")
        sender.send(b'{"method": "clock"}')  # one that takes long, and many behind it
        assert handler_busy.wait(DEADLINE_S)
        for _ in range(300):
            sender.ping()
        assert app.broadcast("stop").get(DEADLINE_S) == {"stopped": True}
        wait_until(lambda: log.events("remote control flooded"), "none is dropped")
        release.set()
        wait_until(lambda: ask("ping", all=True, timeout=0.5) != [], "it receives nothing")


class Import(MetaPathFinder, Loader):
    """Calls a function when what runs the commands is imported, as if for the first time."""

    def __init__(self, found: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        self._found = found
        monkeypatch.setattr(control, "remote_control", remote_control)  # put back at the end
        monkeypatch.delitem(sys.modules, remote_control.__name__)
        monkeypatch.setattr(sys, "meta_path", [self, *sys.meta_path])

    def find_spec(self, name: str, *_: Any) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name == remote_control.__name__ else None

    def exec_module(self, module: ModuleType) -> None:  # not in find_spec: all imports wait there
        self._found()
        vars(module).update(vars(remote_control))


def test_a_stop_is_heard_while_the_first_command_is_loaded(
    app: TaskApp, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()
    released = []
    app.on_broadcast("stop")(lambda _: {})

    def found() -> None:
        begun.set()
        released.append(release.wait(DEADLINE_S))

    sender = Sender(app)
    with working(app), sender.connection:
        Import(found, monkeypatch)
        sender.ping()
        assert begun.wait(DEADLINE_S)
        assert app.broadcast("stop").get(DEADLINE_S) == {}
        release.set()
        assert ask("ping") == {"ok": "pong"}
    assert released == [True], "the stop waited for the import"


def test_remote_control_that_could_not_load_does_with_the_next_command(
    app: TaskApp, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, sender = Silence(), Sender(app)
    troubles: list[Exception] = [
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        RuntimeError("can't start new thread"),
        ImportError("a damaged file"),
    ]

    def trouble(*_: Any) -> None:
        raise troubles.pop(0)

    with working(app, log=log) as worker, sender.connection:

        def fail(times: int) -> None:
            sender.ping()
            wait_until(lambda: len(log.events("remote control failed")) == times, "it goes on")

        with monkeypatch.context() as once:
            once.setattr(worker, "load_idle", trouble)
            fail(1)
        with monkeypatch.context() as once:
            once.setattr("blimp.queue.broadcast.extension.threading.Thread.start", trouble)
            fail(2)
        with monkeypatch.context() as once:
            Import(trouble, once)
            fail(3)
        assert ask("ping") == {"ok": "pong"}
    reasons = [one["reason"] for one in log.events("remote control failed")]
    assert [reason.partition("(")[0] for reason in reasons] == [
        "OSError", "RuntimeError", "ImportError",
    ]  # fmt: skip
    assert [one["dropped"] for one in log.events("remote control failed")] == [1, 1, 1]
    assert not log.events("emergency broadcasts lost")


def test_no_expression_of_a_stranger_runs_and_broadcasts_still_arrive(
    app: TaskApp, ask: Ask
) -> None:
    """A search holds the interpreter lock: this one did for 24 s, and each letter doubles that."""
    app.on_broadcast("stop")(lambda _: {})
    log, sender = Silence(), Sender(app)
    with working(app, log=log, name="a" * 24), sender.connection:
        sender.ping(pattern=".?" * 24 + "b", matcher="pcre")
        assert app.broadcast("stop").get(DEADLINE_S) == {}
        assert ask("ping") == {"ok": "pong"}
    (refused,) = log.events("remote command unreadable")
    assert "matcher 'pcre': must be 'glob'" in refused["reason"]


def test_with_a_key_no_pattern_is_looked_at_before_the_signature(url: str, ask: Ask) -> None:
    log = Silence()
    with (
        TaskApp("tests", broker=url, result_backend=url, signing_key="k" * 20) as app,
        working(app, log=log),
    ):
        assert ask("ping", all=True, pattern="w*", matcher="glob", timeout=0.1) == []
        assert ask("ping") == {"ok": "pong"}
        (refused,) = log.events("remote command unreadable")
        assert "signature" in refused["reason"]
        command = Command(method="ping", pattern="w*", ticket="t")
        assert app.signer is not None
        signature = app.signer.sign_document(command.signed_part(), place=EXCHANGE)
        command = msgspec.structs.replace(command, signature=signature)
        assert is_for(command, worker="worker", app="tests", signer=app.signer)
        command = msgspec.structs.replace(command, pattern="*")
        with pytest.raises(MessageError, match="signature"):
            is_for(command, worker="worker", app="tests", signer=app.signer)


def test_commands_nested_as_deep_as_can_be_read_end_no_remote_control(url: str, ask: Ask) -> None:
    """To check a signature goes a little deeper than to read what it is of."""
    log = Silence()
    with TaskApp("tests", broker=url, signing_key="k" * 20, remote_control="inspect") as app:
        sender = Sender(app)
        with working(app, log=log), sender.connection:
            for depth in range(930, 1000, 2):
                nested = b"[" * depth + b"]" * depth
                body = b'{"method": "x", "pattern": "w*", "signature": "s", "arguments": {"a": %b}}'
                sender.send(body % nested)
            wait_until(
                lambda: len(log.events("remote command unreadable")) == 35, "some were not read"
            )
            assert ask("ping") == {"ok": "pong"}


def test_a_pattern_costs_no_more_than_its_length_times_the_name() -> None:
    def meant(pattern: str, matcher: str | None = "glob") -> bool:
        command = Command(method="ping", pattern=pattern, matcher=matcher)
        return is_for(command, worker="a" * 250 + "@host", app="x", signer=None)

    assert not meant("*a" * 49 + "b")
    assert meant("*a" * 20 + "@h?st")
    assert not meant("b*", None)
    with pytest.raises(MessageError, match="pattern of 101 letters: the limit is 100"):
        meant("a" * 101)


def test_reading_of_commands_and_modes() -> None:
    assert read_command(b'{"method": "ping", "more": 1}', content_type=JSON).method == "ping"
    with pytest.raises(ConfigError, match="must be 'all', 'inspect' or 'off'"):
        remote_control_mode("none", is_signed=False)
    assert remote_control_mode(None, is_signed=True) == "inspect"
    assert remote_control_mode(None, is_signed=False) == "all"
