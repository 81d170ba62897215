"""Chains, groups and chords, nested: what comes out, in which order, and after a kill."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from blimp.errors import Revoked, TaskFailed
from blimp.queue import (
    GroupResult,
    State,
    TaskApp,
    TaskContext,
    chain,
    chord,
    group,
    signature,
)
from blimp.queue.protocol.message import TaskMessage
from tests.queue.canvas.sums import CANVASES, Sums
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working
from tests.queue.server_view import Look


@pytest.fixture
def sums(app: TaskApp) -> Sums:
    return Sums(app)


@pytest.fixture
def worked(sums: Sums, look: Look) -> Iterator[Sums]:
    with working(sums.app) as worker:
        yield sums
        wait_until(lambda: look.waiting() + look.in_flight() == 0, "something is still on its way")
        assert worker.counts["unreadable"] == 0


def test_every_canvas_gives_what_it_says(worked: Sums) -> None:
    sent = {name: make(worked).apply_async() for name, (make, _) in CANVASES.items()}
    found = {name: handle.get(timeout=DEADLINE_S) for name, handle in sent.items()}
    assert found == {name: expected for name, (_, expected) in CANVASES.items()}


def test_a_chain_ends_if_a_link_fails(worked: Sums) -> None:
    canvas = worked.same.s(1) | worked.fail.s().on_error(worked.bad.s("x")) | worked.add.s(1)
    last = canvas.apply_async()
    with pytest.raises(TaskFailed, match="ValueError: no"):
        last.get(timeout=DEADLINE_S)
    assert last.parent is not None
    assert last.parent.parent is not None
    assert (last.parent.state, last.parent.parent.state) == (State.FAILURE, State.SUCCESS)
    assert worked.wait() == [(last.parent.id, "x")]


def test_a_link_may_be_anything(worked: Sums) -> None:
    task = worked.same.s(1)
    task.link(worked.add.s(1) | worked.good.s("chain"))
    task.link(group(worked.good.s("a"), worked.good.s("b")))
    task.link(chord([worked.add.s(1), worked.add.s(2)], worked.good.s("chord")))
    task.delay()
    expected = [("chain",), ("a",), ("b",), ("chord",)]
    found = {(args[0] if isinstance(args[0], int) else tuple(args[0]), *args[1:])
             for args in worked.wait(4)}  # fmt: skip
    assert found == {(2, "chain"), (1, "a"), (1, "b"), ((2, 3), "chord")}
    assert len(worked.heard) == len(expected)


def test_the_errbacks_of_a_chain_are_those_of_each_link(worked: Sums) -> None:
    canvas = chain(worked.fail.s(), worked.same.s())
    canvas.link_error(worked.bad.s("chain") | worked.bad.si("second"))
    canvas.delay()
    assert len(worked.wait(2)) == 2
    assert worked.heard[1] == ("second",)


def test_a_link_of_a_chain_is_called_by_its_last(worked: Sums) -> None:
    canvas = chain(worked.add.s(1, 1), worked.add.s(1))
    canvas.link(worked.good.s())
    canvas.delay()
    assert worked.wait() == [(3,)]


def test_a_retried_link_goes_on_with_its_chain(worked: Sums) -> None:
    @worked.app.task(name="again", bind=True, max_retries=2)
    def again(context: TaskContext, value: int) -> int:
        if context.message.retries < 2:
            context.retry(countdown=0.0)
        return value

    handle = chord([worked.same.s(1) | again.s() | worked.add.s(1), again.s(5)], worked.same.s())()
    assert handle.get(timeout=DEADLINE_S) == [2, 5]


def test_a_result_knows_its_children_and_its_group(worked: Sums) -> None:
    last = (worked.add.s(1, 1) | group(worked.add.s(1), worked.add.s(2))).apply_async()
    assert isinstance(last, GroupResult)
    assert last.get(timeout=DEADLINE_S) == [3, 4]
    first = last.parent
    assert first is not None
    (child,) = first.children
    assert isinstance(child, GroupResult)
    assert child.ids() == last.ids()
    record = last[0].record
    assert (record.group_id, record.parent_id) == (last.id, first.id)


def test_headers_and_stamps_stay(app: TaskApp, sums: Sums) -> None:
    seen: list[TaskMessage] = []

    @app.task(name="look", bind=True, max_retries=1)
    def look(context: TaskContext, *args: Any) -> None:
        seen.append(context.message)
        if context.message.retries < 1:
            context.retry(countdown=0.0)

    stamped = look.s().set(stamped_headers=["who"], who="me")
    with working(app):
        last = (sums.same.s(1) | group(stamped, sums.same.s())).apply_async()
        last.get(timeout=DEADLINE_S)
    assert [one.stamps for one in seen] == [{"who": "me"}] * 2
    assert [one.group_index for one in seen] == [0, 0]
    assert last.parent is not None
    assert {one.root_id for one in seen} == {last.parent.id}


def test_options_hold_for_the_signature_that_has_them(app: TaskApp, sums: Sums) -> None:
    with working(app):
        delayed = chord([sums.same.s(1), sums.same.s(2)], sums.total.s()).apply_async(countdown=0.1)
        named = (sums.same.s(1) | sums.same.s()).apply_async(task_id="mine")
        assert (named.id, named.get(timeout=DEADLINE_S)) == ("mine", 1)
        assert delayed.get(timeout=DEADLINE_S) == 3


@pytest.mark.parametrize(
    ("embed", "complaint"),
    [
        ({"chain": [3]}, r"body: chain\[0\] is no signature"),
        ({"chord": 3}, "body: chord is no signature"),
        (
            {"chord": {"task": "t", "subtask_type": "chord", "kwargs": {}}},
            "required field `header`",
        ),
    ],
)
def test_a_message_with_a_wrong_canvas_is_a_failure(
    sums: Sums, embed: dict[str, Any], complaint: str
) -> None:
    wrong = {name: tuple(one) if isinstance(one, list) else one for name, one in embed.items()}
    message: dict[str, Any] = {"id": "m", "task": "same", "queue": "tests", "group_id": "g"}
    sums.app.publisher.publish(TaskMessage(**(message | wrong)))
    with working(sums.app), pytest.raises(TaskFailed, match=complaint):
        sums.app.result("m").get(timeout=DEADLINE_S)


def test_a_group_is_saved_restored_and_forgotten(worked: Sums) -> None:
    held = group(worked.same.s(1), worked.fail.s()).apply_async()
    with pytest.raises(TaskFailed, match="no"):
        held.get(timeout=DEADLINE_S)
    values = held.join(timeout=DEADLINE_S, propagate=False)
    assert values[0] == 1
    assert isinstance(values[1], TaskFailed)
    held.save()
    again = GroupResult.restore(held.id, app=worked.app)
    assert again == held
    assert again is not None
    assert (again.ids(), again.failed()) == (held.ids(), True)
    again.forget()
    assert GroupResult.restore(held.id, app=worked.app) is None
    assert held.state is State.PENDING
    with pytest.raises(TimeoutError, match="after 0 s: 2 of 2 have not ended"):
        held.get(timeout=0.0)


def test_a_group_is_revoked(sums: Sums) -> None:
    held = group(sums.same.s(1), sums.same.s(2)).apply_async()
    held.revoke()
    with working(sums.app), pytest.raises(Revoked):
        held.get(timeout=DEADLINE_S)


CHORDS, PARTS = 40, 4


def test_every_body_runs_once_if_workers_are_killed(
    url: str, start_worker: Callable[..., WorkerProcess], tmp_path: Path, look: Look
) -> None:
    followed = tmp_path / "followed"

    def lines() -> list[str]:
        return followed.read_text().splitlines() if followed.exists() else []

    with TaskApp("killed", broker=url, result_backend=url) as app:
        sent = [
            chord(
                [
                    signature("chord.part", (number + place,), app=app)
                    if place % 2
                    else signature("chord.part", (number + place,), app=app)
                    | signature("quick", app=app)
                    for place in range(PARTS)
                ],
                signature("chord.body", (number,), app=app),
            )()
            for number in range(CHORDS)
        ]
        for least in (1, 8, 20, 30):
            worker = start_worker(url)
            wait_until(lambda least=least: len(lines()) >= least, "no body starts")
            worker.kill()
        start_worker(url)
        for handle in sent:
            assert handle.wait(DEADLINE_S).state is State.SUCCESS
    wait_until(
        lambda: look.waiting("killed") + look.in_flight(app="killed") == 0, "not all is done"
    )
    seen = {tuple(line.split()) for line in lines()}  # one that was cut off may write twice
    assert seen == {("body", str(number), handle.id) for number, handle in enumerate(sent)}


def test_every_replaced_task_is_replaced_once_if_workers_are_killed(
    url: str, start_worker: Callable[..., WorkerProcess], tmp_path: Path, look: Look
) -> None:
    count = 100
    followed = tmp_path / "followed"

    def lines() -> list[str]:
        return followed.read_text().splitlines() if followed.exists() else []

    with TaskApp("killed", broker=url, result_backend=url) as app:
        sent = [
            (
                signature("replaced", (number,), app=app) | signature("quick", (7,), immutable=True)
            ).apply_async()
            for number in range(count)
        ]
        for least in (5, 30, 60):
            worker = start_worker(url)
            wait_until(lambda least=least: len(lines()) >= least, "nothing is replaced")
            worker.kill()
        start_worker(url)
        assert [handle.get(timeout=DEADLINE_S) for handle in sent] == [7] * count
        ids = [handle.parent.id for handle in sent if handle.parent is not None]
    wait_until(
        lambda: look.waiting("killed") + look.in_flight(app="killed") == 0, "not all is done"
    )
    seen = {tuple(line.split()) for line in lines()}  # one that was cut off may write twice
    assert seen == {("good", str(number), id) for number, id in enumerate(ids)}


def test_a_value_that_json_has_not_stays_what_it_is_in_every_part(worked: Sums) -> None:
    value = {"at": datetime(2030, 1, 1, tzinfo=UTC), "id": UUID(int=7), "raw": b"\xff"}
    become = worked.app.task(name="become", bind=True)(
        lambda context, what: context.replace(worked.same.s(what))
    )
    canvases = {
        "chain": worked.same.si(1) | worked.same.si(value) | worked.same.s(),
        "group": group(worked.same.s(value)),
        "chord": chord([worked.same.s(value), worked.same.s(1)], worked.same.s()),
        "body": chord([worked.same.s(1)], worked.same.si(value)),
        "map": worked.same.map([value]),
        "replaced": become.s(value) | worked.same.s(),
    }
    sent = {name: one.apply_async() for name, one in canvases.items()}
    found = {name: handle.get(timeout=DEADLINE_S) for name, handle in sent.items()}
    assert found == {
        "chain": value, "group": [value], "chord": [value, 1], "body": value, "map": [value],
        "replaced": value,
    }  # fmt: skip
