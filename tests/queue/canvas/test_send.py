"""Sending a canvas: its retry policy, its events, its times."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, LinkError, MessageError, PartlySent, TaskError
from blimp.queue import TaskApp, chord, group, signature
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.publish.publisher import AT_ONCE, BYTES_AT_ONCE
from blimp.queue.redis.keys import Keys
from blimp.queue.retry import ONCE
from tests.queue.conftest import DEADLINE_S, wait_until, working


class Recorder:
    """Stands in for the app's publisher and its sent events."""

    def __init__(self, app: TaskApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.published: list[TaskMessage] = []
        self.policies: list[Any] = []
        self.announced: list[str] = []
        monkeypatch.setattr(app.publisher, "publish", self.publish)
        monkeypatch.setattr(app.publisher, "publish_many", self.publish_many)
        monkeypatch.setattr(app, "on_sent", self.announce)

    def publish(self, message: TaskMessage, *, policy: Any = None, stamp: Any = None) -> None:
        self.published.append(message)
        self.policies.append(policy)

    def publish_many(self, messages: Sequence[TaskMessage], *, policy: Any) -> Iterator[int]:
        for message in messages:
            self.publish(message, policy=policy)
            yield 1

    def announce(self, message: TaskMessage, *, at_s: float) -> None:
        assert at_s > 0.0
        self.announced.append(message.id)


@pytest.fixture
def recorder(app: TaskApp, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(app, monkeypatch)


def test_a_signature_has_the_retry_policy_of_its_options(app: TaskApp, recorder: Recorder) -> None:
    app.send_canvas(group(signature("a"), signature("b")).set(retry=False))
    assert recorder.policies == [ONCE, ONCE]


def test_the_size_of_a_chord_is_written_with_the_retry_policy_too(
    app: TaskApp, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[Any] = []

    def begin(sizes: Any) -> None:
        attempts.append(sizes)
        raise LinkError("no answer")

    assert app.chords is not None
    monkeypatch.setattr(app.chords, "begin", begin)
    policy = {"max_retries": 2, "interval_start": 0.0, "interval_step": 0.0}
    with pytest.raises(LinkError):
        app.send_canvas(chord([signature("a")], signature("b")), retry_policy=policy)
    assert len(attempts) == 3
    assert recorder.published == []


@pytest.mark.parametrize("name", ["eta", "expires"])
def test_a_time_without_a_zone_is_refused(app: TaskApp, recorder: Recorder, name: str) -> None:
    moment: Any = datetime(2030, 1, 1)
    refused = f"option '{name}' is 2030-01-01T00:00:00, which has no time zone: write datetime.now"
    sends: list[Callable[[], object]] = [
        lambda: app.send_task("alone", **{name: moment}),
        lambda: app.send_canvas(signature("alone"), **{name: moment}),
        lambda: app.send_canvas(signature("alone").set(**{name: moment})),
    ]
    for send in sends:
        with pytest.raises(MessageError, match=refused):
            send()
    assert recorder.published == []
    app.send_task("alone", **{name: moment.replace(tzinfo=UTC)})  # text in JSON is read as UTC
    app.send_canvas(signature("alone", options={name: "2030-01-01T00:00:00"}))
    found = {getattr(one, f"{name}_s") for one in recorder.published}
    assert found == {datetime(2030, 1, 1, tzinfo=UTC).timestamp()}


# --- many at once ------------------------------------------------------------------------------

COUNT = 2 * AT_ONCE + 50
LEVEL = Keys().queue("tests").levels[2]


class Failing:
    """Lets the first steps of an app's sender through, and raises from then on."""

    def __init__(self, app: TaskApp, monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
        self._left = after
        sender = app.publisher._sender()
        self._send: Callable[..., None] = sender.send
        monkeypatch.setattr(sender, "send", self.send)

    def send(self, messages: Any, stamp: Any) -> None:
        if self._left == 0:
            raise LinkError("the broker does not answer")
        self._left -= 1
        self._send(messages, stamp)


@pytest.mark.parametrize("key", [None, "k" * 32], ids=["plain", "signed"])
@pytest.mark.parametrize("broker", ["streams", "memory"])
def test_many_tasks_have_their_results_in_their_order(
    url: str, broker: str, key: str | None
) -> None:
    place = url if broker == "streams" else "memory://"
    with TaskApp("many", broker=place, result_backend=url, signing_key=key) as app:
        add = app.task(name="add")(lambda a, b: a + b)
        with working(app):
            handles = app.send_many(add.s(1, number) for number in range(COUNT))
            found = [handle.get(timeout=DEADLINE_S) for handle in handles]
            mixed = app.send_many(
                [add.s(1, 1) | add.s(1), group(add.s(1, n) for n in range(3)), add.s(2, 2)],
                priority=3,
            )
            others = [handle.get(timeout=DEADLINE_S) for handle in mixed]
    assert found == [1 + number for number in range(COUNT)]
    assert others == [3, [1, 2, 3], 4]


def test_many_go_in_steps_of_limited_count_and_size(app: TaskApp, server: redis.Redis) -> None:
    steps: list[int] = []
    sender = app.publisher._sender()
    send = sender.send
    sender.send = lambda messages, stamp: (steps.append(len(messages)), send(messages, stamp))[1]  # type: ignore[method-assign, func-returns-value]
    app.send_many(signature("t", (number,)) for number in range(COUNT))
    assert steps == [AT_ONCE, AT_ONCE, 50]
    steps.clear()
    app.send_many([signature("t", ("x" * (BYTES_AT_ONCE // 3),)) for _ in range(5)])
    assert steps == [2, 2, 1]
    steps.clear()
    app.send_canvas(group(signature("t", (number,)) for number in range(COUNT)))
    assert steps == [AT_ONCE, AT_ONCE, 50]
    assert server.xlen(LEVEL) == 2 * COUNT + 5
    assert app.send_many([]) == []


def test_of_many_that_are_sent_in_part_the_first_are_known(
    app: TaskApp, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(app, monkeypatch, after=2)
    with pytest.raises(PartlySent, match="first 400 were sent: the broker does not") as failed:
        app.send_many((signature("t", (n,)) for n in range(COUNT)), retry=False)
    assert isinstance(failed.value.__cause__, LinkError)
    found: Any = server.xrange(LEVEL)
    assert len(found) == 2 * AT_ONCE
    for handle, (_, entry) in zip(failed.value.sent, found, strict=True):
        assert handle.id.encode() in entry[b"h"]
    with pytest.raises(LinkError):  # nothing was sent of these
        app.send_many([signature("t")], retry=False)


def test_of_a_canvas_that_is_sent_in_part_no_handle_is_returned(
    app: TaskApp, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who sends it again after a plain LinkError would have its first tasks twice."""
    Failing(app, monkeypatch, after=1)
    large = group(signature("t", (n,)) for n in range(COUNT))
    with pytest.raises(PartlySent, match="first 1 were sent") as failed:
        app.send_many([signature("t"), large], retry=False)
    assert len(failed.value.sent) == 1
    assert server.xlen(LEVEL) == AT_ONCE


@pytest.mark.parametrize("is_async", [False, True])
def test_what_was_sent_before_an_iterator_failed_is_known(app: TaskApp, is_async: bool) -> None:
    def rows() -> Iterator[Any]:
        for number in range(AT_ONCE + 1):
            yield signature("t", (number,))
        raise ValueError("the file ends in the middle of a row")

    with pytest.raises(PartlySent, match="middle of a row") as failed:
        asyncio.run(app.asend_many(rows())) if is_async else app.send_many(rows())
    assert len(failed.value.sent) == AT_ONCE
    assert isinstance(failed.value.__cause__, ValueError)
    with pytest.raises(ZeroDivisionError):
        app.send_many(signature("t", (1 / number,)) for number in range(1))


def test_a_wrong_one_of_many_is_named_by_its_place(app: TaskApp, server: redis.Redis) -> None:
    wrong: list[tuple[Any, str]] = [
        ("add", r"signatures\[1\] is no signature"),
        (signature("t", (object(),)), "JSON cannot hold them"),
        (signature("t", ("x" * 2_000_000,)), "the limit is 1000000"),
        (signature("t").set(coalesce="k"), "only a task that is sent alone may"),
    ]
    for one, words in wrong:
        with pytest.raises(MessageError, match=words):
            app.send_many([signature("t"), one])
    assert server.xlen(LEVEL) == 0
    with pytest.raises(ConfigError, match="there is no option wrong"):
        app.send_many([signature("t")], wrong=1)  # type: ignore[call-arg]
    move = app.task(name="move", coalesce="motor")(lambda: None)
    with pytest.raises(MessageError, match=r"signatures\[0\]: 'move' coalesces: it is sent alone"):
        app.send_many([move.s()])
    with pytest.raises(ConfigError, match="task_id is for one"):
        app.send_many([signature("t"), signature("t")], task_id="a")
    many = [*(signature("t") for _ in range(AT_ONCE)), "add"]
    with pytest.raises(PartlySent, match=r"first 200 were sent: signatures\[200\]") as failed:
        app.send_many(many)  # type: ignore[arg-type]
    assert len(failed.value.sent) == server.xlen(LEVEL) == AT_ONCE
    assert isinstance(failed.value, TaskError)


SENDS = """
import sys
from blimp.queue import TaskApp, signature

app = TaskApp("tests", broker=sys.argv[1])
app.send_many(signature("t", (number,)) for number in range(10_000_000))
"""


def test_of_a_killed_sender_each_step_is_there_as_a_whole(url: str, server: redis.Redis) -> None:
    for count in (1, 2_000, 10_000):
        server.flushall()
        words = [sys.executable, "-c", SENDS, url]
        with subprocess.Popen(words, env=os.environ) as sender:
            wait_until(lambda least=count: server.xlen(LEVEL) >= least, "nothing was sent")
            sender.kill()
        found = server.xlen(LEVEL)
        assert found >= count
        assert found % AT_ONCE == 0
