"""Canvases if broker and results are two places: the steps of an end one by one."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.queue import State, TaskApp, TaskContext, chord
from blimp.queue.protocol.message import TaskMessage
from blimp.queue.protocol.record import Record
from blimp.queue.redis.client import open_redis
from tests.broker import EmbeddedBroker
from tests.directory import socket_directory
from tests.queue.canvas.sums import CANVASES, Sums, part
from tests.queue.conftest import DEADLINE_S, wait_until, working

PLACES = ("streams, sqlite", "streams, redis", "memory, redis", "streams, none")


@pytest.fixture(scope="module")
def other_broker() -> Iterator[EmbeddedBroker]:
    with socket_directory() as directory, EmbeddedBroker(directory=directory / "b") as broker:
        yield broker


@pytest.fixture(params=PLACES)
def app(
    request: pytest.FixtureRequest,
    broker_server: EmbeddedBroker,
    other_broker: EmbeddedBroker,
    tmp_path: Path,
) -> Iterator[TaskApp]:
    transport, results = request.param.split(", ")
    urls = {
        "sqlite": f"db+sqlite:///{tmp_path}/results.db",
        "redis": other_broker.url,
        "none": None,
    }
    broker = "memory://" if transport == "memory" else broker_server.url
    with TaskApp("places", broker=broker, transport=transport, result_backend=urls[results]) as app:
        for server in (broker_server, other_broker):
            with contextlib.closing(open_redis(server.url, timeout_s=DEADLINE_S)) as client:
                client.flushall()
        yield app


def test_every_canvas_gives_what_it_says(app: TaskApp) -> None:
    sums = Sums(app)
    if app.results is None:
        canvas = chord([sums.same.s(n) for n in range(5)], sums.total.s() | sums.good.s())
        with working(app):
            app.send_canvas(canvas)
            assert sums.wait() == [(10,)]
        return
    with working(app):
        sent = {name: make(sums).apply_async() for name, (make, _) in CANVASES.items()}
        found = {name: handle.get(timeout=2 * DEADLINE_S) for name, handle in sent.items()}
    assert found == {name: expected for name, (_, expected) in CANVASES.items()}


def test_the_worker_that_finds_the_result_counts_the_part_its_writer_did_not(app: TaskApp) -> None:
    """A worker may be killed between result and acknowledgement."""
    sums = Sums(app)
    if app.results is None:
        pytest.skip("nothing is found if nothing is stored")
    assert app.chords is not None
    app.chords.begin([("g", 1)])
    app.results.store(Record(id="part", state=State.SUCCESS, result=7))
    app.publisher.publish(TaskMessage(**(part("g", 0) | {"queue": app.queue, "delivery": 2})))
    sums.total.function = list
    with working(app) as worker:
        assert app.result("body").get(timeout=DEADLINE_S) == [7]
        wait_until(lambda: worker.counts["done"] == 2, "not all are done")
    assert sums.heard == []


@pytest.mark.parametrize("app", PLACES[:-1], indirect=True)
def test_what_follows_an_end_is_of_the_result_that_stands(app: TaskApp) -> None:
    """Another ended it meanwhile: a worker that had stood still for longer than its lease."""
    sums = Sums(app)
    results = app.results
    assert results is not None

    @app.task(name="late", bind=True)
    def late(context: TaskContext) -> None:
        results.store(Record(id=context.id, state=State.SUCCESS, result=7))
        raise ValueError("too late")

    part = late.s().on_error(sums.bad.s("bad"))
    part.link(sums.good.s("good"))
    with working(app) as worker:
        handle = chord([part, sums.same.s(1)], sums.total.s())()
        assert handle.get(timeout=DEADLINE_S) == 8
        assert sums.wait() == [(7, "good")]
        wait_until(lambda: worker.counts["done"] == 4, "not all are done")
    assert sums.heard == [(7, "good")]
