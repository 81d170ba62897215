"""How a task ends that is called with wrong arguments."""

import pytest

from blimp.errors import TaskFailed
from blimp.queue import TaskApp
from tests.queue.conftest import DEADLINE_S, working
from tests.queue.server_view import Look


@pytest.mark.parametrize(
    ("args", "kwargs", "complaint"),
    [
        ((), {}, "missing 1 required positional argument: 'a'"),
        ((1, 2, 3), {}, "takes from 1 to 2 positional arguments but 3 were given"),
        ((1,), {"c": 1}, "got an unexpected keyword argument 'c'"),
    ],
)
def test_wrong_arguments_are_a_type_error_of_the_task_as_in_celery(
    app: TaskApp, look: Look, args: tuple[int, ...], kwargs: dict[str, int], complaint: str
) -> None:
    """Sent by a program that knows its name alone; `delay` and `apply_async` send no such thing."""

    @app.task(name="add")
    def add(a: int, b: int = 0) -> int:
        return a + b

    with working(app), pytest.raises(TaskFailed) as caught:
        app.send_task(add.name, args, kwargs).get(DEADLINE_S)
    assert caught.value.kind == "TypeError"
    assert complaint in str(caught.value)
    assert (look.dead(), look.left_behind()) == (0, [])
