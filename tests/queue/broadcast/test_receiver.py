"""Emergency broadcasts: past full queues and busy pools, repeated until confirmed."""

import threading

import pytest
from kombu import Exchange

from blimp.errors import Refused
from blimp.queue import State, TaskApp
from blimp.queue.broadcast.receiver import BroadcastReceiver
from blimp.queue.celery.control.command_sender import open_connection
from blimp.queue.extensions import Broadcast
from blimp.queue.protocol.record import Record
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look


def test_a_broadcast_passes_a_full_queue_and_busy_pools(app: TaskApp, look: Look) -> None:
    go = threading.Event()
    busy = threading.Semaphore(0)
    handled_in: list[str] = []

    @app.task(name="hold")
    def hold() -> None:
        busy.release()
        go.wait(DEADLINE_S)

    @app.on_broadcast("stop")
    def stop(broadcast: Broadcast) -> dict[str, object]:
        handled_in.append(threading.current_thread().name)
        return {"stopped": broadcast.payload["what"]}

    with working(app, sync_workers=2, prefetch=2):
        for _ in range(50):
            hold.delay()
        for _ in range(2):
            assert busy.acquire(timeout=DEADLINE_S)
        handle = app.broadcast("stop", {"what": "motors"})
        assert handle.get(DEADLINE_S) == {"stopped": "motors"}
        assert handled_in == ["emergency"]
        assert look.waiting() == 48
        go.set()


def test_a_repeated_broadcast_acts_once_and_is_confirmed_each_time(app: TaskApp) -> None:
    calls: list[str] = []

    @app.on_broadcast("stop")
    def stop(broadcast: Broadcast) -> dict[str, object]:
        calls.append(broadcast.id)
        return {}

    with working(app):
        assert app.broadcast("stop", id="one").get(DEADLINE_S) == {}
        app.result("one").forget()
        assert app.broadcast("stop", id="one").get(DEADLINE_S) == {}
        assert app.broadcast("stop", id="two").get(DEADLINE_S) == {}
    assert calls == ["one", "two"]


def test_a_handler_that_could_not_act_is_called_at_the_next_repeat(app: TaskApp) -> None:
    answers: list[dict[str, object] | None] = [None, {"done": True}]
    failures = [True]

    @app.on_broadcast("stop")
    def stop(broadcast: Broadcast) -> dict[str, object] | None:
        if failures:
            failures.pop()
            raise OSError("the mailbox is unreachable")
        return answers.pop(0)

    with working(app):
        handle = app.broadcast("stop", id="one")
        wait_until(lambda: handle.state is State.PROGRESS, "it does not say that it failed")
        assert handle.progress == {"fraction": 0.0, "reason": "OSError: the mailbox is unreachable"}
        app.broadcast("stop", id="one")
        wait_until(
            lambda: (handle.progress or {}).get("reason") == "received; it could not be done yet",
            "it does not say that it could not be done",
        )
        app.broadcast("stop", id="one")
        assert handle.get(DEADLINE_S) == {"done": True}


def test_a_result_that_json_cannot_hold_stops_no_later_broadcast(app: TaskApp) -> None:
    app.on_broadcast("stop")(lambda broadcast: {"what": object()})
    app.on_broadcast("go")(lambda broadcast: {"gone": True})
    log = Silence()
    with working(app, log=log):
        for _ in range(2):
            assert app.broadcast("stop", id="one").get(DEADLINE_S) == {}
            app.result("one").forget()
        assert app.broadcast("go").get(DEADLINE_S) == {"gone": True}
    assert "emergency broadcasts lost" not in {event for _, event, _ in log.lines}


def test_a_refusal_is_the_confirmation(app: TaskApp) -> None:
    @app.on_broadcast("stop")
    def stop(broadcast: Broadcast) -> dict[str, object]:
        raise Refused("nothing turns")

    with working(app), pytest.raises(Refused, match="nothing turns"):
        app.broadcast("stop").get(DEADLINE_S)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"not json", "malformed"),
        (b'{"id": 3, "name": "stop"}', "Expected `str`, got `int`"),
        (b'{"name": "stop"}', "missing required field `id`"),
        (b'{"id": "", "name": "stop"}', "id: must have 1 to 255 letters"),
        (b'{"id": "a", "name": "stop", "payload": [NaN]}', "got `array`"),
        (b'{"id": "a", "name": "go"}', "known"),
        (
            b'{"id": "a", "name": "stop", "payload": {"a": "' + b"x" * 300_000 + b'"}}',
            "bytes: the limit is 262144",
        ),
        (
            b'{"id": "a", "name": "go", "payload": {"a": ' + b"[" * 2000 + b"]" * 2000 + b"}}",
            "recursion",
        ),
    ],
)
def test_a_bad_broadcast_is_logged_and_the_next_arrives(
    app: TaskApp, raw: bytes, reason: str
) -> None:
    app.on_broadcast("stop")(lambda broadcast: {})
    log = Silence()
    with working(app, log=log):
        with open_connection(app, app.broker) as connection:
            fanout = Exchange(app.emergency_exchange, type="fanout", durable=False)
            connection.Producer().publish(
                raw,
                exchange=fanout,
                declare=[fanout],
                content_type="application/json",
                content_encoding="utf-8",
            )
        assert app.broadcast("stop").get(DEADLINE_S) == {}
    complaints = [str(fields) for level, _, fields in log.lines if level == "error"]
    assert len(complaints) == 1
    assert reason in complaints[0]


def test_a_broadcast_sent_during_an_outage_arrives_after_it(
    app: TaskApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that fails in the midst of a message must not miss the stop behind it."""
    app.on_broadcast("stop")(lambda broadcast: {})
    confirm = BroadcastReceiver._confirm

    def fail(self: BroadcastReceiver, record: Record, url: str) -> None:
        if record.id == "bad":
            app.broadcast("stop", id="behind")
            raise OSError("whatever it was")
        confirm(self, record, url)

    monkeypatch.setattr(BroadcastReceiver, "_confirm", fail)
    log = Silence()
    with working(app, log=log):
        app.broadcast("stop", id="bad")
        assert app.result("behind").get(DEADLINE_S) == {}
    assert len(log.events("emergency broadcasts lost")) == 1
