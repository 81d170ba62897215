"""The app of the workers under fire: a task of each kind that ends differently.

Each tells the motor that it began and that it ended. Read from the environment, so that a
worker process can be started on it: FAULTS_BROKER, FAULTS_MOTOR.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from blimp.errors import LinkError, Reject
from blimp.queue import TaskApp, TaskContext
from blimp.queue.brokers.streams import consumer
from blimp.queue.worker import completions
from tests.faults.motor import MotorLink, What

# A message whose worker a campaign killed twenty times is not poison: it is delivered again.
if "FAULTS_MAX_DELIVERIES" in os.environ:
    for module in (consumer, completions):
        module.MOST_DELIVERIES = int(os.environ["FAULTS_MAX_DELIVERIES"])  # type: ignore[attr-defined]

APP = "faults"
BROKER = os.environ.get("FAULTS_BROKER", "redis+socket:///nowhere?virtual_host=0")
MOTOR = os.environ.get("FAULTS_MOTOR", "/nowhere")
STUMBLES = 2
POLL_S = 0.002
SOON_S = 0.02

motor = MotorLink(MOTOR)


class Stumbled(Exception):
    """What is tried again."""


def tell(what: What, context: TaskContext, *, boot: str = "") -> str | None:
    return motor.tell(
        what,
        id=context.id,
        retries=context.message.retries,
        fence=context.fence,
        pid=os.getpid(),
        boot=boot,
    )


@contextlib.contextmanager
def body(context: TaskContext) -> Iterator[str]:
    """Say that the body begins and ends; yield the boot of the motor that heard it begin."""
    heard = tell(What.BEGAN, context)
    try:
        yield heard or ""
    finally:
        tell(What.ENDED, context)


def make_app(broker: str = BROKER, **options: object) -> TaskApp:
    """Return the app with its tasks. The publisher's need not reach the motor."""
    options = {"unknown_task_wait_s": 0.0, **options}  # one of them is a dead letter
    app = TaskApp(APP, broker=broker, result_backend=broker, **options)  # type: ignore[arg-type]

    @app.task(name="noop", bind=True)
    def noop(context: TaskContext) -> None:
        with body(context):
            pass

    @app.task(name="silent", bind=True, ignore_result=True)
    def silent(context: TaskContext) -> None:
        with body(context):
            pass

    @app.task(name="nap", bind=True)
    def nap(context: TaskContext, nap_s: float) -> float:
        with body(context):
            time.sleep(nap_s)
        return nap_s

    @app.task(name="breathe", bind=True)
    async def breathe(context: TaskContext, nap_s: float) -> float:
        with body(context):
            await asyncio.sleep(nap_s)
        return nap_s

    @app.task(
        name="stumble",
        bind=True,
        autoretry_for=(Stumbled,),
        max_retries=STUMBLES,
        retry_backoff=SOON_S,
        retry_jitter=False,
    )
    def stumble(context: TaskContext) -> int:
        with body(context):
            if context.message.retries < STUMBLES:
                raise Stumbled(f"try {context.message.retries}")
        return context.message.retries

    @app.task(name="turn", bind=True)
    def turn(context: TaskContext) -> bool:
        """An effect that may be asked for twice: the motor knows id, fence and boot.

        The boot is stored before the effect, as a command's is (blimp/tasks/command.py): if this
        is the second delivery the motor may be another one.
        """
        with body(context) as heard:
            stored = context.previous.result if context.previous is not None else None
            boot = stored.get("boot_id", "") if isinstance(stored, dict) else ""
            if not boot:
                boot = heard
                context.progress(0.0, boot_id=boot)
            return tell(What.TURN, context, boot=boot) is not None

    @app.task(name="hold", bind=True)
    def hold(context: TaskContext, go: str) -> bool:
        """Turn the motor once the file `go` is there, its fence as the suffix."""
        with body(context):
            while not Path(f"{go}.{context.fence}").exists():
                time.sleep(POLL_S)
            return tell(What.TURN, context) is not None

    @app.task(name="step", bind=True, idempotent=False)
    def step(context: TaskContext) -> None:
        """An effect that nothing but the queue guards: it must not begin twice."""
        with body(context):
            tell(What.STEP, context)

    @app.task(name="fail", bind=True)
    def fail(context: TaskContext) -> None:
        with body(context):
            raise ValueError("it always does")

    @app.task(name="progress", bind=True, track_started=True)
    def report_progress(context: TaskContext) -> None:
        with body(context):
            context.progress(0.5)

    @app.task(name="reject", bind=True)
    def reject(context: TaskContext) -> None:
        with body(context):
            raise Reject("not by this one")

    @app.task(name="put_back", bind=True)
    def put_back(context: TaskContext) -> None:
        """Back into its queue the first time."""
        with body(context):
            if context.fence == 1:
                raise Reject("once more", requeue=True)

    @app.task(name="steer", bind=True, coalesce=True)
    def steer(context: TaskContext) -> bool:
        """Only the newest that waits."""
        with body(context) as boot:
            return tell(What.TURN, context, boot=boot) is not None

    @app.task(
        name="parent",
        bind=True,
        autoretry_for=(LinkError,),
        max_retries=None,
        retry_backoff=SOON_S,
        retry_jitter=False,
    )
    def parent(context: TaskContext, child_id: str) -> None:
        """Sends another; if the broker is unreachable it is tried again as a whole."""
        with body(context):
            app.send_task("turn", task_id=child_id)

    return app


app = make_app()
