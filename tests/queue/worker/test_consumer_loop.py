"""What the consuming thread takes, gives back and reports, with a broker that a test decides."""

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from blimp.clock import ManualClock
from blimp.errors import ConfigError, LinkError
from blimp.queue import TaskApp
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.worker.aside import AsideRule
from blimp.queue.worker.consumer_loop import ConsumerLoop
from blimp.queue.worker.in_flight import InFlight
from blimp.queue.worker.job import Job
from tests.queue.conftest import Silence

NOWHERE = "redis+socket:///nowhere?virtual_host=0"


class Broker:
    """Stands in for the consumer: what is asked of it is said, and what it does is given."""

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.shared = {"shared"}
        self.at_connect: list[Callable[[], None]] = []

    def connect(self, *, held: Collection[str]) -> tuple[int, int]:
        self.said.append(f"connect, held {' '.join(sorted(held))}".rstrip())
        self.at_connect.pop(0)()
        return 0, 0

    def delivery(self, message: str) -> Any:
        def put_back(*, seen: bool = True) -> None:
            self.said.append(f"put back {message}{', seen' * seen}")

        def reject(reason: str) -> None:
            self.said.append(f"reject {message}: {reason}")

        return SimpleNamespace(tag=message, queue="q", requeue=put_back, reject=reject)

    def is_shared(self, queue: str) -> bool:
        return queue in self.shared

    def consume(self, queues: tuple[str, ...]) -> None:
        self.said.append(f"consume {' '.join(queues)}")

    def disconnect(self) -> None:
        self.said.append("disconnect")


class Bench:
    """A loop of which nothing runs by itself."""

    def __init__(self, app: TaskApp) -> None:
        self.app = app
        self.said: list[str] = []
        self.counts: Counter[str] = Counter()
        self.stopping = threading.Event()
        self.clock = ManualClock()
        self.in_flight = InFlight(
            clock=self.clock, prefetch=2, stopping=self.stopping, slots=lambda _: 1
        )
        lost: Any = SimpleNamespace(
            extensions=(), lost=lambda job: self.said.append(f"lost {job.message.id}")
        )
        self.loop = ConsumerLoop(
            app=app,
            worker="w",
            queues=["q"],
            in_flight=self.in_flight,
            aside=AsideRule(app=app, counts=self.counts, log=Silence()),
            stopping=self.stopping,
            counts=self.counts,
            observers=lost,
            log=Silence(),
        )
        self.loop.submit = lambda job: self.said.append(f"run {job.message.id}")
        self.loop.close()
        self.broker = Broker(self.said)
        self.loop.consumer = self.broker  # type: ignore[assignment]
        self.loop._decoder = SimpleNamespace(read=self.read)  # type: ignore[assignment]
        self.task = app.task(name="t")(lambda: None)

    def run(self) -> None:
        self.loop.run(submit=self.loop.submit, on_consuming=lambda: self.said.append("consuming"))

    def read(self, message: str, *, queue: str) -> Any:
        if message == "bad":
            return "not JSON"
        return TaskMessage(id=message, task="t", queue=queue), self.task

    def add(self, id: str, *, queue: str = "q") -> Job:
        message = TaskMessage(id=id, task="t", queue=queue)
        job = Job(message=message, task=self.task, delivery=self.broker.delivery(id))
        self.in_flight.take(job, wait_s=0.0)
        return job


@pytest.fixture
def bench() -> Iterator[Bench]:
    with TaskApp("ship", broker=NOWHERE, timeout_s=0.01) as app:
        yield Bench(app)


def test_what_waits_goes_back_in_its_order_and_was_not_seen(bench: Bench) -> None:
    running = bench.add("a")
    assert running.begin()
    waiting = [bench.add(id) for id in "bc"]
    bench.loop.requeue_waiting()
    assert bench.said == ["put back c", "put back b"]  # each to the head
    assert bench.in_flight.jobs() == [running]
    assert not any(job.begin() for job in waiting)
    assert bench.counts["requeued"] == 2


def test_what_is_taken_is_run_rejected_or_put_back(bench: Bench) -> None:
    for message in ("a", "bad"):
        bench.loop._take(message)
    bench.stopping.set()
    bench.loop._take("late")
    assert bench.said == ["run a", "reject bad: not JSON", "put back late"]
    assert bench.in_flight.tags() == ["a"]
    assert bench.counts["received"] == 3


def test_a_lost_lease_reaches_its_task(bench: Bench) -> None:
    job = bench.add("a")
    assert job.begin()
    bench.loop._lose("a")
    bench.loop._lose("another")
    assert job.is_lost
    assert bench.said == ["lost a"]
    assert bench.counts["leases_lost"] == 2


def test_only_another_worker_gets_what_waits_for_a_full_pool(bench: Bench) -> None:
    assert bench.add("a").begin()
    for queue in ("q", "shared"):
        bench.add(queue, queue=queue)
    bench.loop._give_back()
    bench.clock.advance(60.0)
    bench.loop._give_back()
    assert bench.said == ["put back shared"]


def test_whatever_goes_wrong_it_connects_again_with_what_it_holds(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    over: Any = SimpleNamespace(failed=lambda *_, **__: 0.0, over=lambda: None)
    monkeypatch.setattr(bench.app, "outage", lambda *_, **__: over)

    def fail(error: Exception) -> Callable[[], None]:
        def raise_it() -> None:
            raise error

        return raise_it

    errors = LinkError("lost"), ValueError("a fault of ours")
    bench.broker.at_connect = [*map(fail, errors), bench.stopping.set]
    assert bench.add("a").begin()
    bench.run()
    attempt = ["connect, held a", "disconnect"]
    assert bench.said == [*attempt, *attempt, "connect, held a", "consuming", "disconnect"]
    assert bench.counts["reconnects"] == 2
    bench.stopping.clear()
    bench.loop._has_consumed = False
    bench.broker.at_connect = [fail(ConfigError("too old"))]
    with pytest.raises(ConfigError, match="too old"):
        bench.run()
