"""Every caller learns the end of its canvas, whatever is wrong with what follows."""

from collections.abc import Iterator
from typing import Any

import pytest

from blimp.errors import Refused, TaskFailed
from blimp.queue import State, TaskApp, chord
from blimp.queue.canvas.follow import after
from blimp.queue.canvas.plan import Settings
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Outcome
from tests.queue.canvas.sums import Sums
from tests.queue.conftest import DEADLINE_S, Silence, wait_until, working
from tests.queue.server_view import Look

HOME = Settings(queue="home", now_s=lambda: 1.0)


def test_a_callback_goes_where_it_says_and_knows_its_parent() -> None:
    parent = TaskMessage(
        id="p", task="one", queue="q", root_id="r", priority=3,
        headers={"blimp_vehicle": "v", "blimp_ttl_s": 1.0},
        callbacks=({"task": "a", "options": {"queue": "other", "task_id": "mine"}},
                   {"task": "b", "kwargs": {"n": 1}}),
    )  # fmt: skip
    first, second = after(parent, Outcome(state=State.SUCCESS, result=5), HOME).messages
    assert (first.id, first.queue, first.args) == ("mine", "other", (5,))
    assert (second.queue, second.kwargs, second.priority) == ("home", {"n": 1}, 3)
    assert (second.parent_id, second.root_id) == ("p", "r")
    assert second.headers == {"blimp_vehicle": "v"}
    (_, again) = after(parent, Outcome(state=State.SUCCESS, result=5), HOME).messages
    assert again.id == second.id != "p"


FINAL_BUT_SUCCESS = (State.FAILURE, State.REFUSED, State.EXPIRED, State.REVOKED, State.INTERRUPTED)


@pytest.mark.parametrize("state", [State.SUCCESS, *FINAL_BUT_SUCCESS, State.RETRY, State.PENDING])
def test_callbacks_follow_a_success_errbacks_any_other_end_and_nothing_what_goes_on(
    state: State,
) -> None:
    body = {"task": "body", "options": {"task_id": "b"}}
    parent = TaskMessage(
        id="p", task="one", queue="q", group_id="g", group_index=2, chord=body,
        headers={"blimp_authority": "7", "blimp_source": "s", "blimp_delivery": 3},
        callbacks=({"task": "call"},), errbacks=({"task": "err"},),
        chain=({"task": "last", "options": {"task_id": "l"}}, {"task": "next"}),
    )  # fmt: skip
    found = after(parent, Outcome(state=state, result=5), HOME)
    sent = [(one.task, one.args) for one in found.messages]
    parts = [(one.group_id, one.id, one.index, one.state, one.value) for one in found.parts]
    if state is State.SUCCESS:
        assert sent == [("call", (5,)), ("next", (5,))]
        assert [one.chain for one in found.messages] == [(), parent.chain[:1]]
        assert parts == [("g", "p", 2, state, 5)]
    elif state in FINAL_BUT_SUCCESS:
        assert sent == [("err", ("p",))]
        assert [(one.id, one.state) for one in found.records] == [("l", state)]
        assert [one[:4] for one in parts] == [("g", "p", 2, state)]
    else:
        assert (sent, parts, found.records) == ([], [], [])
    for one in found.messages:
        assert one.headers == {"blimp_authority": "7", "blimp_source": "s"}


@pytest.fixture
def sums(app: TaskApp) -> Sums:
    return Sums(app)


@pytest.fixture
def small(url: str) -> Iterator[Sums]:
    with TaskApp("tests", broker=url, result_backend=url, limit_bytes=4000) as app:
        yield Sums(app)


WRONG = {"task": "bad", "options": {"countdown": "soon"}}


def test_a_chord_ends_however_long_the_words_of_what_failed(small: Sums) -> None:
    """Each chord tells of the one within, in quotes: the words would grow without end."""

    @small.app.task(name="long")
    def long() -> None:
        raise Refused("both ' and \" " * 290)

    canvas: Any = small.app.tasks["long"].s()
    for _ in range(12):
        canvas = chord([canvas, small.same.s(1)], small.total.s().on_error(small.bad.s()))
    with working(small.app):
        handle = canvas.apply_async()
        with pytest.raises(TaskFailed, match="ChordError: Dependency"):
            handle.get(timeout=DEADLINE_S)
        assert len(small.wait(12)) == 12


def test_an_errback_that_cannot_be_sent_keeps_no_end_back(sums: Sums, look: Look) -> None:
    other = {"task": "bad", "args": ["other"]}
    log = Silence()
    with working(sums.app, log=log):
        alone = sums.app.send_task("fail", link_error=[WRONG, other])
        with pytest.raises(TaskFailed, match="no"):
            alone.get(timeout=DEADLINE_S)
        assert sums.wait() == [(alone.id, "other")]
        wait_until(lambda: look.waiting() + look.in_flight() == 0, "it is not acknowledged")
    assert look.dead() == 0
    (reported,) = log.events("errback")
    assert "'countdown' is 'soon'" in reported["reason"]


def test_tasks_acknowledged_early_go_on_with_their_canvas(sums: Sums) -> None:
    app = sums.app
    early = app.task(name="early", acks_late=False, ignore_result=True)(lambda value: value)
    with working(app) as worker:
        handle = chord([early.s(1) | early.s() | early.s(), early.s(2)], sums.total.s())()
        assert handle.get(timeout=DEADLINE_S) == 3
        wait_until(lambda: worker.counts["done"] == 5, "not all are done")
