"""Tasks that log, one for each kind of pool, for a worker process."""

import logging
import os
import warnings

from blimp.queue import TaskApp

url = os.environ.get("KILLED_BROKER", "redis://localhost")
app = TaskApp("logged", broker=url, result_backend=url)
logger = logging.getLogger("logged")


def say() -> None:
    logger.info("standard %s", "words")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old words", stacklevel=1)


@app.task(name="in.thread")
def in_thread() -> None:
    say()


@app.task(name="in.loop")
async def in_loop() -> None:
    say()


@app.task(name="in.process", cpu_bound=True)
def in_process() -> None:
    say()
    raise ValueError("raised in the worker")


@app.task(name="own.span", cpu_bound=True)
def own_span() -> None:
    from opentelemetry import trace

    with trace.get_tracer("own").start_as_current_span("own"):
        pass
