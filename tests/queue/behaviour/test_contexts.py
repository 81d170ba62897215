"""Context variables: what a task sets ends with it; what a step or a middleware sets reaches it."""

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any

from blimp.queue import TaskApp
from tests.queue.conftest import DEADLINE_S, working

own = contextvars.ContextVar("own", default="clean")
of_step = contextvars.ContextVar("of_step", default="")
of_middleware = contextvars.ContextVar("of_middleware", default="")

app = TaskApp("contexts", broker="redis+socket:///nowhere")  # as a child process finds it


def seen() -> list[str]:
    found = [own.get(), of_step.get(), of_middleware.get()]
    own.set("dirty")
    return found


@app.task(name="in.thread")
def in_thread() -> list[str]:
    return seen()


@app.task(name="in.loop")
async def in_loop() -> list[str]:
    return seen()


@app.task(name="in.process", cpu_bound=True)
def in_process() -> list[str]:
    return seen()


class Step:
    async def start(self, worker: Any) -> None:
        of_step.set("step")

    async def stop(self, worker: Any) -> None: ...


async def middleware(job: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
    assert of_middleware.get() == ""
    of_middleware.set("middleware")
    return await call_next(job)


def test_each_task_runs_in_a_copy_of_the_steps_context(url: str) -> None:
    with TaskApp("contexts", broker=url, result_backend=url, middleware=[middleware]) as own_app:
        own_app.boot_step(Step())
        for name, task in app.tasks.items():
            own_app.task(name=name, cpu_bound=task.options.cpu_bound)(task.function)
        one_of_each = {"sync_workers": 1, "loop_workers": 1, "process_workers": 1}
        with working(own_app, app_path=f"{__name__}:app", **one_of_each):
            for name, expected in (
                ("in.thread", ["clean", "step", "middleware"]),
                ("in.loop", ["clean", "step", "middleware"]),
                ("in.process", ["clean", "", ""]),  # it has no part of the worker's memory
            ):
                handles = [own_app.send_task(name) for _ in range(3)]
                assert [one.get(timeout=DEADLINE_S) for one in handles] == [expected] * 3
