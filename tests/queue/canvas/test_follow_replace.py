"""A task that is replaced: its id, its chain, its chord and its links go to the replacement."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blimp.errors import MessageError, TaskFailed
from blimp.queue import State, TaskApp, TaskContext, chain, chord, group, signature
from blimp.queue.canvas.follow import MOST_REPLACED
from tests.queue.canvas.sums import Sums
from tests.queue.conftest import DEADLINE_S, wait_until, working
from tests.queue.server_view import Look


class Replacing(Sums):
    """The sums, and a task that is replaced by what it is called with."""

    def __init__(self, app: TaskApp) -> None:
        super().__init__(app)

        @app.task(name="become", bind=True, max_retries=3)
        def become(context: TaskContext, plain: dict[str, Any], *args: Any) -> None:
            found = signature(plain, app=app)
            context.replace(found.clone(args) if args else found)

        self.become = become


@pytest.fixture
def sums(app: TaskApp, look: Look) -> Iterator[Replacing]:
    found = Replacing(app)
    with working(app):
        yield found
        wait_until(lambda: look.waiting() + look.in_flight() == 0, "something is still on its way")


def test_the_replacement_has_the_id_of_the_task(sums: Replacing) -> None:
    handle = sums.become.delay(sums.add.s(1, 2))
    assert handle.get(timeout=DEADLINE_S) == 3
    assert handle.record.name == "add"


def canvases(s: Replacing) -> dict[str, tuple[Any, Any]]:
    """Return replacements of one task, and what comes of the task."""
    return {
        "task": (s.add.s(1, 1), 2),
        "chain": (s.add.s(1, 1) | s.add.s(1), 3),
        "group": (group(s.same.s(1), s.same.s(2)), [1, 2]),
        "chain that ends in a group": (s.same.s(1) | group(s.add.s(1), s.add.s(2)), [2, 3]),
        "chord": (chord([s.same.s(1), s.same.s(2)], s.total.s()), 3),
        "chord whose body is a group": (
            chord([s.same.s(1)], group(s.total.s(), s.same.s())), [1, [1]]),
        "another that is replaced": (s.become.s(s.add.s(2, 2)), 4),
    }  # fmt: skip


def test_anything_may_replace_a_task_alone(sums: Replacing) -> None:
    sent = {name: sums.become.delay(one) for name, (one, _) in canvases(sums).items()}
    found = {name: handle.get(timeout=DEADLINE_S) for name, handle in sent.items()}
    assert found == {name: value for name, (_, value) in canvases(sums).items()}


def test_the_links_of_the_task_follow_the_replacement(sums: Replacing) -> None:
    task = sums.become.s(sums.add.s(1, 1) | sums.add.s(1))
    task.link(sums.good.s("good"))
    task.delay()
    assert sums.wait() == [(3, "good")]


def test_the_errbacks_of_the_task_follow_a_replacement_that_fails(sums: Replacing) -> None:
    task = sums.become.s(sums.fail.s()).on_error(sums.bad.s("bad"))
    handle = task.delay()
    with pytest.raises(TaskFailed, match="ValueError: no"):
        handle.get(timeout=DEADLINE_S)
    assert sums.wait() == [(handle.id, "bad")]


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda s: s.add.s(1, 1).set(countdown="soon"), "'countdown' is 'soon'"),
        (lambda _: chain(), "a chain needs a link"),
        (lambda s: s.same.s("x" * 1_000_000), "the limit is"),
    ],
)
def test_a_replacement_that_cannot_be_sent_is_a_failure(
    sums: Replacing, make: Callable[[Replacing], Any], reason: str
) -> None:
    @sums.app.task(name="wrong", bind=True)
    def wrong(context: TaskContext) -> None:
        context.replace(make(sums))

    handle = chord([wrong.s()], sums.total.s())()
    with pytest.raises(
        TaskFailed, match=f"ChordError: Dependency .* raised MessageError.*{reason}"
    ):
        handle.get(timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (7, "replacement is no signature: Expected `object`, got `int`"),
        ({"task": "t", "options": {"chord": {"task": "u"}}}, "must not be a part of a chord"),
        ({"task": "t", "args": [object()]}, "JSON cannot hold"),
    ],
)
def test_a_wrong_replacement_is_named_in_the_task(sums: Replacing, wrong: Any, reason: str) -> None:
    @sums.app.task(name="wrong", bind=True)
    def replace(context: TaskContext) -> None:
        with pytest.raises(MessageError, match=reason):
            context.replace(wrong)

    assert replace.delay().wait(DEADLINE_S).state is State.SUCCESS


def test_celerys_tasks_that_are_canvases(sums: Replacing) -> None:
    def args(name: str, **kwargs: Any) -> Any:
        return sums.app.send_task(name, kwargs=kwargs)

    chunked = args("celery.chunks", task=sums.add.s(), it=[[1, 2], [3, 4], [5, 6]], n=2)
    assert chunked.get(timeout=DEADLINE_S) == [[3, 7], [11]]
    several = args(
        "celery.group", tasks=[sums.same.s(1), sums.add.s(1)], result=None, group_id="g",
        partial_args=[],
    )  # fmt: skip
    with pytest.raises(TaskFailed):
        several.get(timeout=DEADLINE_S)
    whole = args("celery.chord", header=[sums.same.s(1), sums.same.s(2)], body=sums.total.s())
    assert whole.get(timeout=DEADLINE_S) == 3


class Once:
    """Tasks that may not begin twice, with what they have done."""

    def __init__(self, sums: Replacing) -> None:
        self.effects: list[Any] = []
        self.fences: list[int] = []

        @sums.app.task(name="act", idempotent=False, bind=True)
        def act(context: TaskContext, value: Any = None) -> Any:
            self.effects.append(value)
            self.fences.append(context.fence)
            return value

        @sums.app.task(name="become.once", max_retries=3, idempotent=False, bind=True)
        def become(context: TaskContext, plain: dict[str, Any], *_: Any, tries: int = 0) -> None:
            if context.message.retries < tries:
                context.retry(countdown=0.0)
            context.replace(signature(plain, app=sums.app))

        self.act, self.become = act, become


# What takes the place of a task, and what comes of it: its last task may not begin twice.
ENDS_ONCE: dict[str, tuple[Callable[[Replacing, Once], Any], Any]] = {
    "task": (lambda _, o: o.act.s(1), 1),
    "chain": (lambda s, o: s.same.s(1) | o.act.s(), 1),
    "chord": (lambda s, o: chord([s.same.s(1), s.same.s(2)], o.act.s()), [1, 2]),
    "group, then it": (lambda s, o: group(s.same.s(1), s.same.s(2)) | o.act.s(), [1, 2]),
    "body is a chord": (
        lambda s, o: chord([s.same.s(1)], chord([s.total.s(), s.total.s()], o.act.s())), [1, 1]),
    "another that is replaced": (
        lambda s, o: o.become.s(s.same.s(1) | o.act.s()), 1),
    "body that is replaced by a chord": (
        lambda s, o: chord([s.same.s(1)], o.become.si(chord([s.same.s(2)], o.act.s()))), [2]),
    "named chord": (lambda s, o: chord([s.same.s(1)], o.act.s().set(task_id="own")), [1]),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS_ONCE)
@pytest.mark.parametrize("place", ["alone", "link", "last link", "part", "body", "callback"])
def test_the_last_task_of_a_replacement_begins_once_and_not_never(
    sums: Replacing, name: str, place: str
) -> None:
    """It has the id of a task that may not begin twice either, and has begun."""
    once = Once(sums)
    make, value = ENDS_ONCE[name]
    task = once.become.si(make(sums, once))
    whole, found = {
        "alone": (task, value),
        "link": (sums.same.s(0) | task | sums.same.s(), value),
        "last link": (sums.same.s(0) | task, value),
        "part": (chord([task, sums.same.s(9)], sums.same.s()), [value, 9]),
        "body": (chord([sums.same.s(0)], task), value),
        "callback": (sums.same.s(0), 0),
    }[place]
    if place == "callback":
        whole.link(task.set(task_id="called"))
    handle = whole.delay()
    assert handle.get(timeout=DEADLINE_S) == found
    if place == "callback":
        handle = sums.app.result("called")
        assert handle.get(timeout=DEADLINE_S) == value
    assert once.effects == [value]


@pytest.mark.parametrize("name", ENDS_ONCE)
def test_the_fence_of_a_replaced_task_does_not_fall_back(sums: Replacing, name: str) -> None:
    """The flight process refuses a lower fence of a known id as an older delivery."""
    once = Once(sums)
    handle = once.become.apply_async([ENDS_ONCE[name][0](sums, once)], {"tries": 2})
    handle.get(timeout=DEADLINE_S)
    assert once.fences == [3]


def test_a_task_that_replaces_itself_by_a_chord_is_replaced_so_often_and_not_more(
    sums: Replacing,
) -> None:
    depths: list[int] = []

    @sums.app.task(name="loop", bind=True, idempotent=False)
    def loop(context: TaskContext, *_: Any) -> None:
        depths.append(context.message.nesting)
        context.replace(chord([sums.same.s(1)], loop.s()))

    with pytest.raises(TaskFailed, match=f"was replaced {MOST_REPLACED} times, the limit"):
        loop.delay().get(timeout=4 * DEADLINE_S)
    assert depths == list(range(MOST_REPLACED + 1))
