"""Canvases where broker and results are two places: the steps of an end one by one."""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from blimp.errors import TaskFailed
from blimp.tasks import State, TaskApp, chord
from blimp.tasks.broker.urls import open_redis
from blimp.tasks.message import TaskMessage
from blimp.tasks.results.record import Record
from tests.broker import EmbeddedBroker
from tests.tasks.conftest import DEADLINE_S, working
from tests.tasks.test_canvas import CANVASES, Sums, part
from tests.tasks.test_worker import wait_until

PLACES = ("streams, sqlite", "streams, redis", "redis, redis", "memory, redis", "streams, none")


@pytest.fixture(scope="module")
def other_broker() -> Iterator[EmbeddedBroker]:
    directory = Path(tempfile.mkdtemp(prefix="blimp-"))
    try:
        with EmbeddedBroker(directory=directory / "b") as broker:
            yield broker
    finally:
        shutil.rmtree(directory, ignore_errors=True)


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


def test_a_chord_whose_part_fails_ends_its_body(app: TaskApp) -> None:
    sums = Sums(app)
    body = (sums.total.s() | sums.same.s()).on_error(sums.bad.s("body"))
    inner = chord([sums.fail.s(), sums.same.s(2)], sums.total.s())
    with working(app):
        handle = chord([inner, sums.same.s(1)], body)()
        if app.results is not None:
            with pytest.raises(TaskFailed, match="ChordError: Dependency"):
                handle.get(timeout=DEADLINE_S)
        assert [name for _, name in sums.wait()] == ["body"]


def test_whoever_finds_the_result_counts_the_part_its_writer_did_not(app: TaskApp) -> None:
    """A worker may be killed between result and acknowledgement."""
    sums = Sums(app)
    if app.results is None:
        pytest.skip("nothing is found where nothing is kept")
    assert app.chords is not None
    app.chords.begin([("g", 1)])
    app.results.store(Record(id="part", state=State.SUCCESS, result=7))
    app.publisher.publish(TaskMessage(**(part("g", 0) | {"queue": app.queue, "delivery": 2})))
    sums.total.function = list
    with working(app) as worker:
        assert app.result("body").get(timeout=DEADLINE_S) == [7]
        wait_until(lambda: worker.counts["done"] == 2, "not all are done")
    assert sums.heard == []
