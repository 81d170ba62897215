"""What tasks get by parameter: opened around each call or once, with real workers and processes."""

import asyncio
import contextlib
import functools
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from blimp.errors import ConfigError, TaskFailed
from blimp.queue import Depends, TaskApp
from tests.queue.conftest import DEADLINE_S, Silence, WorkerProcess, working


@pytest.fixture
def alone() -> Iterator[TaskApp]:
    with TaskApp("alone", broker="memory://") as app:
        yield app


def read_notes(directory: Path) -> list[list[str]]:
    return [line.split() for line in (directory / "notes").read_text().splitlines()]


@pytest.mark.parametrize("place", ["thread", "loop", "process"])
def test_around_each_call_and_once_in_each_process_or_loop(
    url: str, start_worker: Callable[..., WorkerProcess], tmp_path: Path, place: str
) -> None:
    options = "--process-workers 1 --loop-workers 2 --sync-workers 2"
    worker = start_worker(url, app="tests.queue.depending_app:app", options=options)
    with TaskApp("depending", broker=url, result_backend=url) as app:
        sent = [app.send_task(place) for _ in range(8)]
        sessions = [one.get(DEADLINE_S) for one in sent]
        with pytest.raises(TaskFailed, match="as asked"):
            app.send_task(place, [True]).get(DEADLINE_S)
        with pytest.raises(TaskFailed, match="unexpected keyword argument 'session'"):
            app.send_task(place, kwargs={"session": [0, 0]}).get(DEADLINE_S)
    before = read_notes(tmp_path)
    assert worker.terminate() == 0
    notes = read_notes(tmp_path)
    assert not [words for words in before if "client" in words[1] and "closed" in words]
    done = Counter((words[1], words[3]) for words in notes)
    own = [number for _, number in sessions]
    assert len({*own}) == 8
    assert done["session", "opened"] == 9
    assert done["session", "closed"] == 8
    assert done["session", "raised"] == 1
    assert done["client", "opened"] == done["client", "closed"] == 1
    clients = {client for client, _ in sessions}
    assert len(clients) == (done["aclient", "opened"] if place == "loop" else 1)
    if place == "loop":
        assert 1 <= done["aclient", "opened"] == done["aclient", "closed"] <= 2  # by its load
        assert done["asession", "opened"] == 9
        assert done["asession", "closed"] == 8
    pids = {words[0] for words in notes}
    assert len(pids) == 1
    assert (str(worker.process.pid) in pids) is (place != "process")
    order = [words[1] for words in notes if words[3] == "closed"]
    assert order[-1] in ("client", "aclient")


class Store:
    """What is depended on: what happened to it, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def session(self) -> Iterator[str]:
        self.seen.append("opened")
        try:
            yield "session"
        except BaseException as error:
            self.seen.append(type(error).__name__)
            raise
        else:
            self.seen.append("committed")
        finally:
            self.seen.append("closed")

    async def asession(self) -> AsyncIterator[str]:
        self.seen.append("opened")
        try:
            yield "session"
        except BaseException as error:
            self.seen.append(type(error).__name__)
            raise
        finally:
            self.seen.append("closed")


def test_a_direct_call_has_it_too_or_is_given_another(alone: TaskApp) -> None:
    store = Store()

    @alone.task(name="plain")
    def plain(row: int, session: str = Depends(store.session)) -> tuple[int, str]:
        return row, session

    @alone.task(name="async")
    async def awaited(row: int, session: str = Depends(store.asession)) -> tuple[int, str]:
        await asyncio.sleep(0)
        return row, session

    assert plain(1) == (1, "session")
    assert asyncio.run(awaited(1)) == (1, "session")
    assert store.seen == ["opened", "committed", "closed", "opened", "closed"]
    assert plain(2, session="fake") == (2, "fake")
    assert asyncio.run(awaited(2, session="fake")) == (2, "fake")
    assert len(store.seen) == 5


def test_senders_give_none_of_it(alone: TaskApp) -> None:
    @alone.task(name="it")
    def it(row: int, session: str = Depends(Store().session), *, by: str = "") -> None: ...

    it.delay(1)
    it.delay(1, by="me")
    for wrong in (partial(it.delay, 1, "mine"), partial(it.delay, 1, session="mine")):
        with pytest.raises(TypeError, match="arguments of 'it'"):
            wrong()


def test_what_cannot_be_opened_or_closed_fails_the_task(url: str) -> None:
    def refuses() -> str:
        raise OSError("no database")

    def cannot_close() -> Iterator[str]:
        yield "it"
        raise OSError("not committed")

    def takes_it() -> Iterator[str]:
        with contextlib.suppress(ValueError):
            yield "it"

    with TaskApp("failing", broker=url, result_backend=url) as app:

        @app.task(name="opened")
        def opened(it: str = Depends(refuses)) -> str:
            return it

        @app.task(name="closed")
        def closed(it: str = Depends(cannot_close)) -> str:
            return it

        @app.task(name="taken")
        def taken(it: str = Depends(takes_it)) -> str:
            raise ValueError("its own")

        with working(app):
            for task, why in ((opened, "no database"), (closed, "not comm"), (taken, "its own")):
                with pytest.raises(TaskFailed, match=why):
                    task.delay().get(DEADLINE_S)


def test_in_one_call_each_is_made_once_and_contexts_of_contextlib_are_opened(
    alone: TaskApp,
) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def inner() -> Iterator[list[str]]:
        seen.append("in")
        yield seen
        seen.append("out")

    def left(one: list[str] = Depends(inner)) -> list[str]:
        return one

    @contextlib.asynccontextmanager
    async def right(one: list[str] = Depends(inner), *_: int, **__: int) -> AsyncIterator[str]:
        yield one[-1]
        seen.append("right out")

    @alone.task(name="it")
    async def it(a: list[str] = Depends(left), b: str = Depends(right)) -> bool:
        seen.append("ran")
        return a is seen and b == "in"

    assert asyncio.run(it())
    assert seen == ["in", "ran", "right out", "out"]


def test_what_is_kept_is_made_by_one_thread_and_again_only_if_it_failed(alone: TaskApp) -> None:
    made: list[int] = []
    at_it = threading.Semaphore(0)

    def once() -> Iterator[int]:
        made.append(len(made))
        if len(made) == 1:
            raise OSError("not yet")
        for _ in range(8):
            at_it.acquire(timeout=1.0)
        yield made[-1]
        made.append(-1)

    @alone.task(name="it")
    def it(one: int = Depends(once, per="worker")) -> int:
        return one

    with pytest.raises(OSError, match="not yet"):
        it()
    found: list[int] = []

    def call() -> None:
        at_it.release()
        found.append(it())

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert found == [1] * 8
    assert made == [0, 1]
    alone.close()
    assert made == [0, 1, -1]


def test_what_a_loop_keeps_outlives_the_cancelled_job_that_asked_first(alone: TaskApp) -> None:
    seen: list[str] = []

    async def main() -> None:
        may_open = asyncio.Event()

        async def slow() -> AsyncIterator[str]:
            seen.append("opening")
            await may_open.wait()
            yield "slow"
            seen.append("closed")

        async def fails_first() -> str:
            seen.append("tried")
            if seen.count("tried") == 1:
                raise OSError("not yet")
            return "made"

        @alone.task(name="failed")
        async def failed(one: str = Depends(fails_first, per="worker")) -> str:
            await asyncio.sleep(0)
            return one

        with pytest.raises(OSError, match="not yet"):
            await failed()
        assert await failed() == await failed() == "made"
        assert seen == ["tried"] * 2
        seen.clear()

        @alone.task(name="it")
        async def it(one: str = Depends(slow, per="worker")) -> str:
            await asyncio.sleep(0)
            return one

        first, second = asyncio.create_task(it()), asyncio.create_task(it())
        while not seen:
            await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        may_open.set()
        assert await second == "slow"
        assert await it() == "slow"
        await alone.kept.aclose()
        assert seen == ["opening", "closed"]
        assert await it() == "slow"  # made again

    asyncio.run(main())
    assert seen == ["opening", "closed", "opening"]


def test_one_that_does_not_close_keeps_no_worker_from_its_end(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end = threading.Event()

    def hangs() -> Iterator[str]:
        yield "hangs"
        may_end.wait(DEADLINE_S)

    async def fails() -> AsyncIterator[str]:
        yield "fails"
        raise OSError("does not close")

    def of_hanging(one: str = Depends(hangs, per="worker")) -> str:
        return one

    async def of_failing(one: str = Depends(fails, per="worker")) -> str:
        await asyncio.sleep(0)
        return one

    for function, limit_s, says in (
        (of_failing, DEADLINE_S, "dependency does not close"),
        (of_hanging, 0.05, "dependencies do not close"),
    ):
        monkeypatch.setattr("blimp.queue.dependencies.CLOSED_BY_S", limit_s)
        log = Silence()
        with TaskApp("closing", broker=url, result_backend=url) as app:
            task = app.task(name="it")(function)
            with working(app, log=log):
                assert task.delay().get(DEADLINE_S) in ("hangs", "fails")
            assert log.events(says)
    may_end.set()


def test_what_is_needed_is_closed_last_and_the_process_s_own_after_the_loops(url: str) -> None:
    log: list[str] = []

    def client() -> Iterator[int]:
        yield 1
        log.append("client")

    async def engine(_: int = Depends(client, per="worker")) -> AsyncIterator[int]:
        yield 2
        await asyncio.sleep(0.01)
        log.append("engine")

    async def pool(_: int = Depends(engine, per="worker")) -> AsyncIterator[int]:
        yield 3
        log.append("pool")

    with TaskApp("ordered", broker=url, result_backend=url) as app:

        @app.task(name="it")
        async def it(_: int = Depends(pool, per="worker")) -> None:
            await asyncio.sleep(0)

        with working(app):
            it.delay().get(DEADLINE_S)
        assert log == ["pool", "engine", "client"]


def test_what_a_call_is_cut_off_in_is_closed_before_what_the_worker_keeps(url: str) -> None:
    log: list[str] = []
    began = threading.Event()

    async def pool() -> AsyncIterator[int]:
        yield 1
        log.append("pool")

    async def session(_: int = Depends(pool, per="worker")) -> AsyncIterator[int]:
        try:
            yield 2
        finally:
            log.append("session")

    with TaskApp("cut", broker=url, result_backend=url) as app:

        @app.task(name="it")
        async def it(_: int = Depends(session)) -> None:
            began.set()
            await asyncio.sleep(DEADLINE_S)

        with working(app) as worker:
            it.delay()
            assert began.wait(DEADLINE_S)
            worker.stop_cold()
        assert log == ["session", "pool"]


def test_of_two_workers_in_one_process_the_last_closes(url: str) -> None:
    log: list[str] = []

    def client() -> Iterator[int]:
        yield 1
        log.append("closed")

    with TaskApp("two", broker=url, result_backend=url) as app:

        @app.task(name="it")
        def it(one: int = Depends(client, per="worker")) -> int:
            return one

        with working(app, name="one"):
            with working(app, name="two"):
                it.delay().get(DEADLINE_S)
            assert log == []
        assert log == ["closed"]


def test_what_a_loop_kept_and_has_ended_by_itself_is_made_again(alone: TaskApp) -> None:
    made: list[asyncio.Event] = []

    async def client() -> AsyncIterator[int]:
        breaks = asyncio.Event()
        made.append(breaks)

        async def reader() -> None:
            await breaks.wait()
            raise OSError("connection lost")

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(reader())
            yield len(made)
            reading.cancel()

    @alone.task(name="it")
    async def it(one: int = Depends(client, per="worker")) -> int:
        await asyncio.sleep(0)
        return one

    async def main() -> None:
        assert await it() == await it() == 1
        made[0].set()
        while await it() == 1:
            await asyncio.sleep(0)
        assert await it() == 2
        await alone.kept.aclose()

    with contextlib.redirect_stderr(None):
        asyncio.run(main())


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inner(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return inner


class Client:
    """Its instances can be called; that makes none of it a coroutine function."""

    async def __call__(self, query: str) -> str:
        return query


@dataclass(frozen=True)
class Configured:
    """What cannot be hashed."""

    options: dict[str, int]

    def __call__(self) -> Iterator[dict[str, int]]:
        yield self.options


@contextlib.contextmanager
def numbered(number: int = 1) -> Iterator[int]:
    yield number


def a_generator() -> Iterator[int]:
    yield 1


def test_wrappers_partials_classes_and_objects(alone: TaskApp) -> None:
    for name, factory, expected in (
        ("partial", functools.partial(numbered, 5), 5),
        ("wrapper", logged(numbered), 1),
        ("object", Configured({"a": 1}), {"a": 1}),
        ("class", Client, Client),
    ):
        one = Depends(factory)

        def it(one: Any = one) -> Any:
            return one

        found = alone.task(name=name)(it)()
        assert found == expected or isinstance(found, Client)
    for name, factory in (("generator", a_generator), ("coroutine", a_coroutine)):
        wrapped = Depends(logged(factory))

        def wrong(one: Any = wrapped) -> None: ...

        with pytest.raises(TypeError, match=f"made a {name}, which nothing would run or open"):
            alone.task(name=name)(wrong)()


async def a_coroutine() -> str:
    return ""


async def an_async_generator() -> AsyncIterator[str]:
    yield ""


def by_way(one: str = Depends(a_coroutine)) -> str:
    return one


def needs(what: int) -> str:
    return str(what)


def each_call() -> str:
    return ""


def once_of_each(one: str = Depends(each_call)) -> str:
    return one


def by_place(one: str = Depends(each_call), /) -> str:
    return one


def first(session: str = Depends(each_call), row: int = 1) -> None: ...
def starred(session: str = Depends(each_call), *rows: int) -> None: ...
def positional(session: str = Depends(each_call), /) -> None: ...
def of_coroutine(one: str = Depends(a_coroutine)) -> None: ...
def of_generator(one: str = Depends(an_async_generator)) -> None: ...
def of_either(one: str = Depends(by_way)) -> None: ...
def of_one_that_needs(one: str = Depends(needs)) -> None: ...
def of_one_by_place(one: str = Depends(by_place)) -> None: ...
def of_kept(one: str = Depends(once_of_each, per="worker")) -> None: ...


@pytest.mark.parametrize(
    ("function", "options", "why"),
    [
        (first, {}, "'session' depends on something, and stands before 'row'"),
        (starred, {}, "'session' depends on something, and stands before 'rows'"),
        (positional, {}, "'session' depends on something, and is given by name"),
        (of_kept, {"bind": True}, "'one' depends on something, and is given by name"),
        (of_coroutine, {}, "'one' depends on a coroutine or an async generator"),
        (of_generator, {"cpu_bound": True}, "'one' depends on a coroutine or an async generator"),
        (of_either, {}, "'one' depends on a coroutine or an async generator"),
        (of_one_that_needs, {}, r"needs\(\): nothing gives it its parameter 'what'"),
        (of_one_by_place, {}, r"by_place\(\): 'one' cannot be given by name"),
        (of_kept, {}, r"once_of_each\(\): is made once per worker, and 'one' ends with each call"),
    ],
)
def test_what_could_never_be_given_is_refused_at_the_declaration(
    alone: TaskApp, function: Callable[..., None], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=f"task 'it'.*{why}"):
        alone.task(name="it", **options)(function)


def test_what_is_no_dependency_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"Depends\(3\): must be a function, or a class"):
        Depends(3)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="per='ship'"):
        Depends(each_call, per="ship")  # type: ignore[call-overload]
