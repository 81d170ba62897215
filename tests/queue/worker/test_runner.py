"""One job on its way through the worker: it fails closed, and its function is called once."""

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from blimp.errors import LeaseLost, LinkError
from blimp.queue import State, TaskApp
from blimp.queue.extensions import Observers
from blimp.queue.protocol.message import AGAIN, TaskMessage
from blimp.queue.protocol.record import Outcome, running_task
from blimp.queue.steps import here
from blimp.queue.worker.aside import AsideRule
from blimp.queue.worker.job import Job, Limits, Stage
from blimp.queue.worker.pools import ThreadCall, drive
from blimp.queue.worker.runner import Runner
from blimp.queue.worker.shutdown import Stops
from tests.queue.conftest import Silence

NOWHERE = "redis+socket:///nowhere?virtual_host=0"


class Acker:
    """Notes what it is asked for, and waits for nothing."""

    def __init__(self, done: list[str]) -> None:
        self._done = done
        self.answers = True  # whether the broker answers before the worker ends

    def until_done(self, function: Callable[..., Any], *args: Any) -> bool:
        if self.answers:
            function(*args)
        return self.answers

    def wait_written(self) -> None:
        self._done.append("wait")

    def wait_out(self, error: LinkError) -> bool:
        self._done.append("wait out")
        return False

    def put(self, outcome: Outcome) -> None:
        self._done.append(f"put {outcome.state}")


class Running:
    """A runner, with a function and middleware that note that they are called."""

    def __init__(self, *middleware: Any, **options: Any) -> None:
        self.done: list[str] = []
        self.released: list[Job] = []
        self.result: Any = 3  # of the function; raised if it is an error
        app = TaskApp("ship", broker=NOWHERE, middleware=middleware)
        self.task = app.task(name="t", **options)(self.function)
        self.stops = Stops()
        self.acker = Acker(self.done)
        acker: Any = self.acker
        completions: Any = SimpleNamespace(build=lambda job, outcome: outcome)
        alarms: Any = None
        self.runner = Runner(
            app=app,
            worker="w",
            stops=self.stops,
            on_done=self.released.append,
            acker=acker,
            completions=completions,
            aside=AsideRule(app=app, counts=Counter(), log=Silence()),
            limits=Limits(alarms=alarms),
            observers=Observers(log=Silence()),
            log=Silence(),
        )
        self.job = self.make_job()

    def function(self) -> Any:
        self.done.append(f"call {running_task.get()}")
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result

    def make_job(self, **headers: Any) -> Job:
        delivery: Any = SimpleNamespace(tag="1", ack=lambda: self.done.append("ack"))
        message = TaskMessage(id="a", task="t", headers=headers)
        job = Job(message=message, task=self.task, delivery=delivery)
        job.in_thread, job.call = here, ThreadCall()
        return job

    def run(self) -> list[str]:
        """Run the job; return what was done."""
        drive(self.runner.run(self.job))
        assert self.job.stage is Stage.DONE
        assert running_task.get() == ""
        return self.done


def test_a_function_is_called_once_and_its_end_is_written() -> None:
    running = Running()
    assert running.run() == ["call t", "put SUCCESS"]
    drive(running.runner.run(running.job))
    assert running.done == ["call t", "put SUCCESS"]


def test_what_is_sent_again_waits_for_what_is_being_written() -> None:
    running = Running()
    running.job = running.make_job(**{AGAIN: True})
    assert running.run() == ["wait", "call t", "put SUCCESS"]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), KeyboardInterrupt()])
def test_whatever_a_function_raises_the_worker_goes_on(error: BaseException) -> None:
    running = Running()
    running.result = error
    assert running.run() == ["call t", "put FAILURE"]


def test_a_coroutine_that_nobody_awaited_is_no_result() -> None:
    async def never() -> None: ...

    running = Running()
    running.result = never()
    assert running.run() == ["call t", "put FAILURE"]


# --- it fails closed -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("cannot tell"), LeaseLost("gone")])
def test_middleware_that_fails_keeps_the_function_from_being_called(error: Exception) -> None:
    async def fails(job: Job, call_next: Any) -> Outcome:
        raise error

    assert Running(fails).run() == ["put FAILURE"]


@pytest.mark.parametrize(("is_called", "calls"), [(False, 2), (True, 1)])
def test_without_a_broker_the_chain_starts_over_until_the_function_was_called(
    is_called: bool, calls: int
) -> None:
    tries: list[int] = []

    async def asks(job: Job, call_next: Any) -> Outcome:
        tries.append(1)
        if is_called:
            await call_next(job)
        if len(tries) == 1:
            raise LinkError("unreachable")
        found: Outcome = await call_next(job)
        return found

    running = Running(asks)
    expected = ["call t", "put FAILURE"] if is_called else ["wait out", "call t", "put SUCCESS"]
    assert running.run() == expected
    assert len(tries) == calls


def test_a_lost_resource_keeps_the_function_from_being_called() -> None:
    """It was lost while the job was on its way."""
    running = Running()
    running.task.options = msgspec.structs.replace(running.task.options, requires="ships")

    def check() -> None:
        raise LeaseLost("taken away")

    grant: Any = SimpleNamespace(check=check)
    running.job.grant = grant
    assert running.run() == ["put FAILURE"]


# --- early acknowledgement, lost leases ----------------------------------------------------------


def test_an_early_acknowledgement_is_before_the_function() -> None:
    assert Running(acks_late=False).run() == ["ack", "call t", "put SUCCESS"]


def test_without_its_acknowledgement_it_is_not_called() -> None:
    running = Running(acks_late=False)
    running.acker.answers = False
    assert running.run() == []
    assert running.released == [running.job]


def test_what_was_lost_before_its_acknowledgement_is_not_called() -> None:
    running = Running(acks_late=False)
    running.job.lose()
    assert running.run() == ["ack"]
    assert running.released == [running.job]


def test_nothing_is_written_of_a_lost_one() -> None:
    running = Running()
    running.job.lose()
    assert running.run() == ["call t"]
    assert running.released == [running.job]


def test_a_revoked_one_ends_so_whatever_its_function_raises() -> None:
    running = Running()
    running.job.is_revoked = True  # while it runs
    running.result = ValueError("interrupted")
    assert running.run() == ["call t", f"put {State.REVOKED}"]
