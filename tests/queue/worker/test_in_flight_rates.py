"""Rate limits: how they are written, when a job may begin, and what waits meanwhile."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.clock import ManualClock
from blimp.errors import ConfigError
from blimp.queue import State, TaskApp
from blimp.queue.options import per_second
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker.in_flight import LEAST_HELD, LONGEST_LATER_S, MOST_SLOWED, InFlight, Rate
from blimp.queue.worker.job import Job
from tests.queue.celery.control.conftest import Ask, ask
from tests.queue.conftest import wait_until, working
from tests.queue.server_view import Look

__all__ = ["ask"]

DEADLINE_S = 60.0


@pytest.mark.parametrize(
    ("limit", "per_s"),
    [
        ("10/s", 10.0),
        ("120/m", 2.0),
        ("1800/h", 0.5),
        ("0.5/s", 0.5),
        ("5", 5.0),
        (7, 7.0),
        (0.25, 0.25),
        (None, None),
        ("", None),
        (0, None),
        ("0/s", None),
    ],
)
def test_limits_are_written_as_celery_does(limit: object, per_s: float | None) -> None:
    assert per_second(limit) == per_s


@pytest.mark.parametrize(
    "limit",
    ["fast", "10/d", "10/s/s", -1, "-1/s", "nan", "inf/s", "1e9/s", True, [], {}, "1" * 40, "1/-s"],
)
def test_a_limit_that_is_none_says_so(limit: Any) -> None:
    with pytest.raises(ConfigError, match="rate_limit"):
        per_second(limit)
    app = TaskApp("rates", broker="redis+socket:///nowhere?virtual_host=0")
    with pytest.raises(ConfigError, match="rate_limit"):
        app.task(name="a", rate_limit=limit)(lambda: None)


class Table:
    """What is in flight: one limited task, one that is not, and a clock moved by hand."""

    def __init__(self, limit: str) -> None:
        self.clock = ManualClock()
        self.app = TaskApp("rates", broker="redis+socket:///nowhere?virtual_host=0")
        self.app.task(name="slow", rate_limit=limit)(lambda: None)
        self.app.task(name="free")(lambda: None)
        self.in_flight = InFlight(clock=self.clock, prefetch=4, stopping=threading.Event())
        self.in_flight.expect(self.app.tasks.values())
        self._count = 0

    def take(self, task: str, *, wait_s: float = 0.0) -> tuple[Job, bool]:
        self._count += 1
        delivery: Any = SimpleNamespace(tag=str(self._count))
        job = Job(
            message=TaskMessage(id=str(self._count), task=task),
            task=self.app.tasks[task],
            delivery=delivery,
        )
        return job, self.in_flight.take(job, wait_s=wait_s)


def test_one_after_another_and_others_meanwhile() -> None:
    table = Table("2/s")
    assert table.take("slow")[1]
    waiting = [table.take("slow") for _ in range(3)]
    assert [may_run for _, may_run in waiting] == [False] * 3
    assert table.in_flight.room() == 3  # they hold up nothing else
    assert table.take("free")[1]
    assert table.in_flight.waiting() == 3
    assert not any(table.in_flight.is_scheduled(job) for job, _ in waiting)
    ran = []
    for _ in range(4):
        assert (
            table.in_flight.patience_s(60.0) == pytest.approx(0.5) or not table.in_flight.waiting()
        )
        table.clock.advance(0.5)
        ran.append([job.message.id for job in table.in_flight.due()])
    assert ran == [["2"], ["3"], ["4"], []]
    table.clock.advance(60.0)  # what was not used is not kept
    assert table.take("slow")[1]
    assert not table.take("slow")[1]


def test_what_waits_for_its_time_waits_for_its_rate_after_it() -> None:
    table = Table("1/s")
    assert table.take("slow")[1]
    table.clock.advance(0.4)
    job, _ = table.take("slow", wait_s=0.3)
    assert table.in_flight.is_scheduled(job)
    table.clock.advance(0.3)
    assert table.in_flight.due() == []
    assert not table.in_flight.is_scheduled(job)
    table.clock.advance(0.3)
    assert table.in_flight.due() == [job]


def test_a_rate_is_changed_while_some_wait() -> None:
    table = Table("1/h")
    table.take("slow")
    waiting = [table.take("slow")[0] for _ in range(4)]
    table.in_flight.limit_rate("slow", 10.0)
    table.clock.advance(0.1)
    assert table.in_flight.due() == waiting[:1]
    table.in_flight.limit_rate("slow", None)
    assert table.in_flight.patience_s(60.0) == 0.0
    assert table.in_flight.due() == waiting[1:]
    assert table.take("slow")[1]
    table.in_flight.limit_rate("free", 1.0)
    assert table.take("free")[1]
    assert not table.take("free")[1]


def test_one_that_is_lost_or_given_back_takes_no_turn() -> None:
    table = Table("1/s")
    table.take("slow")
    first, second = table.take("slow")[0], table.take("slow")[0]
    table.in_flight.lose(first.delivery.tag)
    table.clock.advance(1.0)
    assert table.in_flight.due() == [second]


def test_where_all_that_waited_are_gone_others_are_taken() -> None:
    """A worker that stood still has lost all it had in flight: what comes now is not put off."""
    table = Table("1/s")
    waiting = [table.take("slow")[0] for _ in range(LEAST_HELD + 1)]
    assert table.in_flight.postpone_s("slow") is not None
    for job in waiting:
        table.in_flight.lose(job.delivery.tag)
    assert table.in_flight.postpone_s("slow") is None
    table.clock.advance(1.0)
    assert table.take("slow")[1]


def test_not_more_than_so_many_wait_in_flight() -> None:
    table = Table("1/h")
    for _ in range(MOST_SLOWED + 1):
        table.take("slow")
    assert table.in_flight.room() == 0
    assert table.in_flight.postpone_s("slow") == LONGEST_LATER_S
    assert table.in_flight.postpone_s("free") is None


def test_those_postponed_come_one_after_another() -> None:
    rate = Rate(100.0)
    assert [round(rate.later_s(0.0), 3) for _ in range(3)] == [0.01, 0.02, 0.03]
    rate.change(1.0, now_s=0.0)
    assert rate.later_s(0.0) == 1.0


def test_a_worker_keeps_the_rate_and_runs_others_meanwhile(
    app: TaskApp, ask: Ask, look: Look
) -> None:
    ran: list[str] = []
    app.task(name="slow", rate_limit="20/s")(lambda: ran.append("slow"))
    app.task(name="free")(lambda: ran.append("free"))
    with working(app, sync_workers=2, prefetch=4) as worker:
        slow = [app.send_task("slow") for _ in range(3 * LEAST_HELD)]
        app.send_task("free").get(DEADLINE_S)
        wait_until(lambda: worker.counts["postponed"] > 0, "all is held")
        assert len(worker.in_flight.jobs()) <= 2 * LEAST_HELD
        slow[4].get(DEADLINE_S)
        assert ask("rate_limit", task_name="slow", rate_limit="500/s") == {
            "ok": "new rate limit set successfully"
        }
        assert ask("registered")[1] == "slow [rate_limit=500/s]"
        for handle in slow:
            assert handle.wait(DEADLINE_S).state is State.SUCCESS
        assert len(ran) == len(slow) + 1
        assert ran.index("free") < len(slow)
        assert ask("rate_limit", task_name="slow", rate_limit=0) == {
            "ok": "rate limit disabled successfully"
        }
        assert ask("registered")[1] == "slow"
        assert "unknown task" in ask("rate_limit", task_name="x", rate_limit="1/s")["error"]
        assert "rate_limit" in ask("rate_limit", task_name="slow", rate_limit="x")["error"]
    assert look.left_behind() == []


def test_one_that_is_revoked_while_it_waits_ends_at_once(app: TaskApp) -> None:
    app.task(name="slow", rate_limit="1/h")(lambda: None)
    with working(app) as worker:
        app.send_task("slow").get(DEADLINE_S)
        waiting = app.send_task("slow")
        wait_until(lambda: worker.counts["received"] == 2, "it is not taken")
        waiting.revoke()
        assert waiting.wait(DEADLINE_S).state is State.REVOKED
