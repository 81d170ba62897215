"""A Celery program catches what our worker raises by Celery's names, with its arguments."""

import asyncio
import time
from typing import Any

import msgspec
import pytest
from kombu.utils.json import dumps, loads

from blimp.errors import Refused, Reject, WorkerLost
from blimp.queue import TaskApp, TaskContext
from blimp.queue.protocol.record import State
from blimp.queue.publish.revocations import Revocation
from tests.interop.guest import PROGRAMS, Guest, find_guest
from tests.queue.conftest import working

find_guest()

PAST = "2020-01-01T00:00:00+00:00"
LIMIT_S = 0.2

Call = tuple[str, list[Any], dict[str, Any]]


def catch(guest: Guest, *calls: Call) -> list[dict[str, Any]]:
    """Have each `(task, args, options)` sent by a Celery program; return what it saw."""
    found: list[dict[str, Any]] = loads(guest.ask(PROGRAMS / "catch.py", *map(dumps, calls)))
    return found


class Odd(Exception):
    """Has several arguments."""


@pytest.fixture
def tasks(app: TaskApp) -> TaskApp:
    app.settings = msgspec.structs.replace(app.settings, unknown_task_wait_s=0.0)

    @app.task(name="soft", soft_time_limit=LIMIT_S)
    def soft() -> None:
        until_s = time.monotonic() + 20.0
        while time.monotonic() < until_s:
            time.sleep(0.001)

    @app.task(name="hard", time_limit=LIMIT_S)
    async def hard() -> None:
        await asyncio.sleep(20.0)

    @app.task(name="tries", bind=True, max_retries=0)
    def tries(context: TaskContext) -> None:
        raise context.retry(countdown=0.0)

    @app.task(name="reject")
    def reject() -> None:
        raise Reject("of no use")

    @app.task(name="lost")
    def lost() -> None:
        raise WorkerLost("its process was killed")

    @app.task(name="refuse")
    def refuse() -> None:
        raise Refused("the battery is at 6.1 V")

    @app.task(name="raise")
    def fail(what: str) -> None:
        raise {
            "value": ValueError("the valve", 3, {"open": [True]}),
            "key": KeyError("pad"),
            "file": FileNotFoundError(2, "no such chart"),
            "odd": Odd("a", {1}),
        }[what]

    @app.task(name="same")
    def same(value: Any) -> Any:
        return value

    @app.task(name="total")
    def total(values: list[Any]) -> int:
        return len(values)

    return app


def test_limits_and_revocations_have_celerys_names(tasks: TaskApp, guest: Guest) -> None:
    with working(tasks):
        expired, revoked, soft, hard, tries, reject, lost, unknown, refused = catch(
            guest,
            ("same", [1], {"expires": PAST}),
            ("same", [1], {"countdown": 5.0, "revoke": True}),
            ("soft", [], {}),
            ("hard", [], {}),
            ("tries", [], {}),
            ("reject", [], {}),
            ("lost", [], {}),
            ("nothing", [], {}),
            ("refuse", [], {}),
        )
    for found in (expired, revoked):
        assert (found["state"], found["class"]) == ("REVOKED", "TaskRevokedError")
        assert "TaskRevokedError" in found["is"]
    assert [found["class"] for found in (soft, hard, tries, reject, lost, unknown, refused)] == [
        "SoftTimeLimitExceeded",
        "TimeLimitExceeded",
        "MaxRetriesExceededError",
        "Reject",
        "WorkerLostError",
        "NotRegistered",
        "Refused",
    ]
    for found in (soft, hard, tries, reject, lost, unknown):
        assert found["class"] in found["is"]  # the class of celery.exceptions, not one made up
    assert refused["args"] == ["the battery is at 6.1 V"]


def test_arguments_arrive_one_by_one(tasks: TaskApp, guest: Guest) -> None:
    with working(tasks):
        value, key, file, odd = catch(
            guest, *(("raise", [what], {}) for what in ("value", "key", "file", "odd"))
        )
    assert (value["class"], value["args"]) == ("ValueError", ["the valve", 3, {"open": [True]}])
    assert (key["class"], key["args"], key["text"]) == ("KeyError", ["pad"], "'pad'")
    assert (file["class"], file["text"]) == ("FileNotFoundError", "[Errno 2] no such chart")
    assert (odd["class"], odd["args"]) == ("Odd", ["a", "{1}"])


TYPED = (
    '{"__type__": "datetime", "__value__": "2026-11-22T05:43:00+00:00"}',
    '{"__type__": "date", "__value__": "2026-11-22"}',
    '{"__type__": "time", "__value__": "05:43:00"}',
    '{"__type__": "uuid", "__value__": {"hex": "11111111222233334444555555555555"}}',
    '{"__type__": "decimal", "__value__": "3.30"}',
    '{"__type__": "bytes", "__value__": "abc"}',
    '{"__type__": "base64", "__value__": "AP8="}',
)


@pytest.mark.parametrize("compression", [None, "zlib", "gzip", "bzip2"])
def test_typed_and_compressed_values_come_back_as_they_were(
    tasks: TaskApp, guest: Guest, compression: str | None
) -> None:
    values = [loads(one) for one in TYPED]
    seen: list[Any] = []

    @tasks.task(name="echo")
    def echo(value: Any) -> Any:
        seen.append(type(value))
        return value

    with working(tasks):
        found = catch(guest, *(("echo", [one], {"compression": compression}) for one in values))
    assert [one.get("value") for one in found] == values
    assert [one["type"] for one in found] == [type(one).__name__ for one in values]
    assert sorted(map(repr, seen)) == sorted(repr(type(one)) for one in values)


def test_a_bomb_and_an_unknown_compression_are_named(tasks: TaskApp, guest: Guest) -> None:
    with working(tasks) as worker:
        bomb, unknown = catch(
            guest,
            ("bomb", [], {"compression": "zlib"}),
            ("same", [1], {"compression": "lzma"}),
        )
        assert worker.counts["unreadable"] == 2
    assert "is longer than 1000000" in bomb["text"]
    assert "compression 'application/x-lzma': only" in unknown["text"]


@pytest.mark.parametrize("worker", ["ours", "Celery's"])
def test_an_expired_task_ends_for_its_caller_and_its_chord(
    tasks: TaskApp, guest: Guest, worker: str
) -> None:
    """The message has `expires` and AMQP's `expiration`; the broker must not drop it."""
    one = {"task": "same", "args": [1], "kwargs": {}, "options": {}}
    total = {"task": "total", "args": [], "kwargs": {}, "options": {}}
    calls: list[Call] = [
        ("same", [1], {"expires": PAST}),
        ("chord", [one, one, total], {"expires": PAST}),
        ("same", [2], {"expires": 60.0}),
    ]
    if worker == "ours":
        with working(tasks):
            alone, whole, good = catch(guest, *calls)
    else:
        guest.start("-m", "celery", "-A", "sums", "worker", "-P", "solo", "-l", "ERROR")
        alone, whole, good = catch(guest, *calls)
    assert (alone["state"], alone["class"]) == ("REVOKED", "TaskRevokedError")
    assert whole["class"] in ("ChordError", "TaskRevokedError")  # its own, or its part's
    assert (good["state"], good["value"]) == ("SUCCESS", 2)


def test_our_client_reads_what_a_celery_worker_writes(app: TaskApp, guest: Guest) -> None:
    guest.start("-m", "celery", "-A", "sums", "worker", "-P", "solo", "-l", "ERROR")
    values = [loads(one) for one in TYPED]
    handles = [app.send_task("same", (one,)) for one in values]
    assert [handle.get(20.0) for handle in handles] == values


def test_a_celery_worker_does_not_run_what_was_revoked_while_it_waited(
    app: TaskApp, guest: Guest
) -> None:
    revoked = app.send_task("same", (1,))
    assert revoked.revoke() is Revocation.REVOKED
    handle = app.send_task("same", (2,))
    worker = guest.start("-m", "celery", "-A", "sums", "worker", "-P", "solo", "-l", "INFO")
    assert handle.get(20.0) == 2
    assert revoked.state is State.REVOKED
    assert not worker.has_printed(revoked.id, "succeeded")
    assert worker.has_printed(revoked.id, "Discarding revoked task")
