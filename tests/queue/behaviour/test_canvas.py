"""Chains, groups and chords, nested: what comes out, in which order, and after a kill."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import redis

from blimp.errors import MessageError, Revoked, TaskFailed
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


def test_a_signature_that_has_been_json_is_the_same_canvas(worked: Sums) -> None:
    """A signature that has been through JSON is the same canvas."""
    import json

    made = {
        name: signature(json.loads(json.dumps(make(worked))), app=worked.app)
        for name, (make, _) in CANVASES.items()
    }
    sent = {name: one.apply_async() for name, one in made.items()}
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


def test_a_chain_ends_if_a_link_is_revoked(worked: Sums) -> None:
    waits = threading.Event()
    worked.app.task(name="hold")(lambda: waits.wait(DEADLINE_S))
    last = (signature("hold", app=worked.app) | worked.add.si(1, 1) | worked.add.s(1)).apply_async(
        link_error=worked.bad.s()
    )
    assert last.parent is not None
    last.parent.revoke()
    waits.set()
    with pytest.raises(Revoked):
        last.get(timeout=DEADLINE_S)
    assert worked.wait() == [(last.parent.id,)]


def test_a_chord_whose_part_fails_ends_its_body(worked: Sums) -> None:
    body = worked.total.s().on_error(worked.bad.s("body"))
    handle = chord([worked.same.s(1), worked.fail.s(), worked.same.s(2)], body)()
    with pytest.raises(TaskFailed, match=r"ChordError: Dependency .* raised ValueError\('no'\)"):
        handle.get(timeout=DEADLINE_S)
    assert isinstance(handle.parent, GroupResult)
    assert handle.parent[1].id in str(handle.result)
    assert worked.wait() == [(handle.id, "body")]


def test_what_would_have_followed_a_failed_chord_ends_as_well(worked: Sums) -> None:
    inner = chord([worked.fail.s(), worked.same.s(2)], worked.total.s() | worked.add.s(1))
    handle = chord([inner, worked.same.s(1)], worked.same.s())()
    with pytest.raises(TaskFailed, match=r"Dependency .* raised ChordError..Dependency"):
        handle.get(timeout=DEADLINE_S)


@pytest.mark.parametrize("header", ["chain", "unknown", "wrong"])
def test_a_part_that_never_runs_is_a_part_that_failed(sums: Sums, header: str, look: Look) -> None:
    part = {
        "chain": lambda: sums.fail.s(1) | sums.same.s() | sums.same.s(),
        "unknown": lambda: signature("nobody.knows"),
        "wrong": lambda: sums.same.s(1, 2, 3),
    }[header]()
    with working(sums.app):
        handle = chord([part, sums.same.s(1)], sums.total.s())()
        with pytest.raises(TaskFailed, match="ChordError: Dependency"):
            handle.get(timeout=DEADLINE_S)


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


def test_a_link_that_would_be_too_long_fails_with_the_limit(url: str) -> None:
    with TaskApp("tests", broker=url, result_backend=url, limit_bytes=2000) as app:
        sums = Sums(app)
        grow = app.task(name="grow")(lambda: "x" * 1500)
        with working(app):
            handle = (grow.s() | sums.add.s("y" * 600)).apply_async()
            with pytest.raises(TaskFailed, match=r"MessageError: 'add' is \d+ bytes .* is 2000"):
                handle.get(timeout=DEADLINE_S)


def test_nothing_of_a_group_is_sent_if_one_is_too_long(app: TaskApp, look: Look) -> None:
    with pytest.raises(MessageError, match="the limit is"):
        app.send_canvas(group(signature("t"), signature("t", ("x" * 1_000_001,))))
    assert look.waiting() == 0


@pytest.mark.parametrize("acks_late", [False, True])
@pytest.mark.parametrize("ignore_result", [False, True])
def test_parts_may_be_acknowledged_early_and_keep_no_result(
    worked: Sums, acks_late: bool, ignore_result: bool
) -> None:
    options: dict[str, Any] = {"acks_late": acks_late, "ignore_result": ignore_result}
    part = worked.app.task(name="part", **options)(lambda value: value)
    assert chord([part.s(n) for n in range(6)], worked.same.s())().get(DEADLINE_S) == [*range(6)]
    assert (part.s(1) | part.s() | worked.add.s(1)).delay().get(timeout=DEADLINE_S) == 2


def test_a_time_in_the_options_of_a_later_link_is_written(worked: Sums) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.05)
    last = worked.same.s().set(eta=soon, expires=soon + timedelta(seconds=60))
    assert (worked.same.s(3) | last).delay().get(timeout=DEADLINE_S) == 3


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


def test_a_group_is_waited_for_by_one_subscription(worked: Sums, server: redis.Redis) -> None:
    held = group(worked.same.s(n) for n in range(50)).apply_async()
    reported: list[dict[str, Any]] = []
    channels: list[list[int]] = []  # of each connection that hears more than one

    def tell(progress: dict[str, Any]) -> None:
        reported.append(progress)
        found: Any = server.client_list()
        # The worker's listener, in RESP3, has one channel for stops and one for commands.
        hearing = [one for one in found if one["resp"] == "2"]
        channels.append([int(one["sub"]) for one in hearing if int(one["sub"]) > 1])

    assert held.get(timeout=DEADLINE_S, on_progress=tell) == list(range(50))
    assert channels == [[50]] * 50
    assert [one["done"] for one in reported] == list(range(1, 51))
    assert (held.completed_count, held.ready(), held.successful()) == (50, True, True)


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


def test_a_task_publishes_its_progress(worked: Sums) -> None:
    reported = threading.Event()

    @worked.app.task(name="tell", bind=True)
    def tell(context: TaskContext) -> bool:
        context.progress(0.5)
        return reported.wait(DEADLINE_S)

    def hear(details: dict[str, Any]) -> None:
        assert details == {"fraction": 0.5}
        reported.set()

    assert tell.delay().get(timeout=2 * DEADLINE_S, on_progress=hear) is True


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
