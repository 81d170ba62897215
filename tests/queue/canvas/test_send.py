"""Sending a canvas: its retry policy, its events, its times."""

from datetime import UTC, datetime
from typing import Any

import pytest

from blimp.errors import ConfigError, LinkError
from blimp.queue import TaskApp, chain, chord, group, signature
from blimp.queue.protocol.message import TaskMessage, build_body
from blimp.queue.retry import ONCE, RetryPolicy


class Recorder:
    """Stands in for the app's publisher and its sent events."""

    def __init__(self, app: TaskApp, monkeypatch: pytest.MonkeyPatch) -> None:
        self.published: list[TaskMessage] = []
        self.policies: list[Any] = []
        self.announced: list[str] = []
        monkeypatch.setattr(app.publisher, "publish", self.publish)
        monkeypatch.setattr(app, "on_sent", self.announce)

    def publish(self, message: TaskMessage, *, policy: Any = None, stamp: Any = None) -> None:
        self.published.append(message)
        self.policies.append(policy)

    def announce(self, message: TaskMessage, *, at_s: float) -> None:
        assert at_s > 0.0
        self.announced.append(message.id)


@pytest.fixture
def recorder(app: TaskApp, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(app, monkeypatch)


@pytest.mark.parametrize(
    ("options", "retries"),
    [
        ({}, None),
        ({"retry": False}, 0),
        ({"retry_policy": {"max_retries": 7}}, 7),
        ({"retry_policy": RetryPolicy(max_retries=6)}, 6),
    ],
)
def test_each_message_of_a_canvas_has_the_retry_policy_of_the_call(
    app: TaskApp, recorder: Recorder, options: dict[str, Any], retries: int | None
) -> None:
    app.send_canvas(chord([signature("a"), signature("b")], signature("c")), **options)
    expected = app.retry_policy.max_retries if retries is None else retries
    assert [policy.max_retries for policy in recorder.policies] == [expected] * 2
    for message in recorder.published:
        build_body(message)  # the policy is the sender's and does not travel


def test_a_signature_has_the_retry_policy_of_its_options(app: TaskApp, recorder: Recorder) -> None:
    app.send_canvas(group(signature("a"), signature("b")).set(retry=False))
    assert recorder.policies == [ONCE, ONCE]


def test_a_wrong_retry_policy_is_named_before_anything_is_sent(
    app: TaskApp, recorder: Recorder
) -> None:
    with pytest.raises(ConfigError, match="unknown field `tries`"):
        app.send_canvas(signature("a"), retry_policy={"tries": 3})
    assert recorder.published == []


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


def test_every_message_that_is_sent_is_announced(app: TaskApp, recorder: Recorder) -> None:
    app.send_canvas(group(signature("a"), chain(signature("b"), signature("c"))))
    assert recorder.announced == [one.id for one in recorder.published]
    assert len(recorder.announced) == 2


@pytest.mark.parametrize("name", ["eta", "expires"])
def test_a_time_without_a_zone_is_utc_like_a_celery_worker_reads_it(
    app: TaskApp, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    import time

    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        moment: Any = datetime(2030, 1, 1)
        app.send_task("alone", **{name: moment})
        app.send_canvas(signature("alone"), **{name: moment})
        app.send_canvas(signature("alone").set(**{name: moment}))
    finally:
        monkeypatch.undo()
        time.tzset()
    found = {getattr(one, f"{name}_s") for one in recorder.published}
    assert found == {datetime(2030, 1, 1, tzinfo=UTC).timestamp()}
