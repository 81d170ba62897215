"""Celery's words: an error says what each is called here."""

import importlib
from collections.abc import Callable
from typing import Any

import pytest

import blimp.queue
from blimp.errors import ConfigError
from blimp.queue import TaskApp, TaskContext, words

app: Any = TaskApp("words", broker="redis+socket:///nowhere")  # for a checker it lacks them
plain = app.task(name="plain")(print)
bound = app.task(name="bound", bind=True)(lambda context, what: getattr(context, what))


def imports_celery() -> None:
    from blimp.queue import Celery  # noqa: F401


@pytest.mark.parametrize(
    ("mistake", "error", "said"),
    [
        (lambda: TaskApp("a", broker="memory://", backend="redis://"), ConfigError,  # type: ignore[call-arg]
         "TaskApp has no option backend; Celery's `backend` is here: result_backend="),
        (lambda: TaskApp("a", broker="memory://", task_always_eager=True), ConfigError,  # type: ignore[call-arg]
         "`task_always_eager` is here: blimp.queue.testing"),
        (lambda: app.conf, AttributeError, "'TaskApp' object has no attribute 'conf'; Celery's"),
        (lambda: app.conf.task_always_eager, AttributeError, "keywords of TaskApp"),
        (lambda: app.autodiscover_tasks(), AttributeError, "imports the modules"),
        (lambda: plain.request.id, AttributeError, "`request` is here: with @app.task"),
        (lambda: bound.call("request"), AttributeError, "context.id, context.retries"),
        (lambda: bound.call("hostname"), AttributeError, "is here: context.worker"),
        (lambda: app.task(base=int), ConfigError, "`base` is here: a task is a function"),
        (lambda: plain.apply_async(routing_key="a"), ConfigError, "`routing_key` is here: queue="),
        (imports_celery, ImportError, "`Celery` is here: TaskApp"),
        (lambda: app.nonsense, AttributeError, "no attribute 'nonsense'$"),
        (lambda: blimp.queue.nonsense, AttributeError, "has no attribute 'nonsense'$"),
        (lambda: TaskApp("a", broker="memory://", nonsense=1), ConfigError, "nonsense$"),  # type: ignore[call-arg]
    ],
)  # fmt: skip
def test_a_word_of_celery_says_what_it_is_called(
    mistake: Callable[[], object], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        mistake()


def test_what_there_is_is_no_mistake() -> None:
    """A row for a name that exists would never be read, or be wrong."""
    there: list[tuple[dict[str, str], Any]] = [
        (words.APP, app), (words.TASK, plain), (words.MODULE, blimp.queue),
    ]  # fmt: skip
    for table, owner in there:
        assert [name for name in table if name in dir(owner)] == []
    known = importlib.import_module("blimp.queue.settings").AppSettings.__struct_fields__
    assert set(words.SETTINGS) & {*known} <= {"results"}
    assert set(words.CONTEXT) & {*dir(TaskContext)} == set()
