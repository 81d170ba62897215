"""Many callers and few connections, on a real server."""

import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, LinkError
from blimp.queue import ResourcePool, TaskApp
from blimp.queue.redis.client import ClientOptions, Link, open_redis
from tests.queue.conftest import DEADLINE_S, wait_until, working

MOST = 4
CALLERS = 120
NAME = "sender"


@pytest.fixture
def sender(url: str) -> Iterator[TaskApp]:
    """An app that may have MOST connections, which the server knows by NAME.

    A caller may wait for one as long as a test may take: the machine may be busy.
    """
    named = f"{url}&client_name={NAME}"
    options: dict[str, Any] = {"max_connections": MOST, "timeout_s": DEADLINE_S}
    with TaskApp("tests", broker=named, result_backend=named, **options) as app:
        yield app


def connections(server: redis.Redis) -> int:
    return sum(one["name"] == NAME for one in server.client_list())


def test_many_threads_that_send_and_wait_share_few_connections(
    app: TaskApp, sender: TaskApp, server: redis.Redis
) -> None:
    app.task(name="double")(lambda number: 2 * number)
    at_once = threading.Barrier(CALLERS)

    def call(number: int) -> Any:
        at_once.wait(DEADLINE_S)
        return sender.send_task("double", (number,)).get(timeout=DEADLINE_S)

    with working(app), ThreadPoolExecutor(CALLERS) as threads:
        assert list(threads.map(call, range(CALLERS))) == [2 * n for n in range(CALLERS)]
    assert 1 < connections(server) <= MOST


def test_a_thread_that_waits_for_a_result_keeps_none(
    app: TaskApp, sender: TaskApp, server: redis.Redis
) -> None:
    go = threading.Event()
    app.task(name="wait")(lambda: go.wait(DEADLINE_S))
    with working(app, sync_workers=1), ThreadPoolExecutor(CALLERS) as threads:
        handle = sender.send_task("wait")
        waits = [threads.submit(handle.get, DEADLINE_S) for _ in range(CALLERS)]
        wait_until(
            lambda: len(sender.awaiting._open) == CALLERS or any(one.done() for one in waits),
            "they do not wait",
        )
        assert [one.exception() for one in waits if one.done()] == []
        assert connections(server) <= MOST
        sender.send_task("wait")  # others go on meanwhile
        go.set()
        assert [one.result(DEADLINE_S) for one in waits] == [True] * CALLERS
    assert sender.awaiting._waits == {}


def test_holders_that_wait_for_a_resource_leave_connections_to_others(
    sender: TaskApp, server: redis.Redis
) -> None:
    pool = ResourcePool(sender.broker_link, "ships", 30.0)
    pool.add("twin")

    def hold(number: int) -> None:
        pool.release(pool.acquire(f"holder {number}", wait_s=DEADLINE_S))

    with ThreadPoolExecutor(3 * MOST) as threads:
        first = pool.acquire("first")
        holds = [threads.submit(hold, number) for number in range(3 * MOST)]
        wait_until(lambda: len(pool.stats().waiting) == 3 * MOST, "they do not wait")
        pool.release(first)
        for one in holds:
            one.result(DEADLINE_S)
    assert connections(server) <= MOST


def test_the_error_of_a_full_pool_names_limit_and_server(url: str, server: redis.Redis) -> None:
    with TaskApp("tests", broker=f"{url}&max_connections=3", timeout_s=1.0, retry=False) as app:
        link = app.broker_link.link_to(app.broker)
        held = [link.connection() for _ in range(3)]
        with pytest.raises(LinkError, match=r"all 3 connections .* more max_connections") as caught:
            app.send_task("add")
        assert url.split("?")[0] in str(caught.value)
        threads = ThreadPoolExecutor(1)
        waiting = threads.submit(link.connection)
        link.give_up(held.pop())
        assert waiting.result(DEADLINE_S).can_read() is False
        threads.shutdown()
        del waiting  # its connection is lost without being given back, as by a killed thread
        gc.collect()
        assert app.send_task("add")


def test_who_waits_longest_comes_first(url: str, server: redis.Redis) -> None:
    client = open_redis(url, timeout_s=DEADLINE_S, options=ClientOptions(max_connections=2))
    pool: Any = client.connection_pool
    held, order = [pool.get_connection() for _ in range(2)], []

    def take(number: int) -> None:
        connection = pool.get_connection()
        order.append(number)
        pool.release(connection)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for count, thread in enumerate(threads, 1):
        thread.start()
        wait_until(lambda count=count: len(pool._waiting) == count, "it does not wait")
    pool.release(held.pop())
    for thread in threads:
        thread.join(DEADLINE_S)
    assert order == list(range(8))
    client.close()


def test_a_forked_child_has_connections_of_its_own(sender: TaskApp) -> None:
    link = sender.broker_link.link_to(sender.broker)
    held = [link.connection() for _ in range(MOST)]
    pid = os.fork()
    if not pid:
        try:
            link.give_up(held[0])  # the parent's: it is no place in the child's pool
            sender.send_task("add")
            os._exit(0 if len(link.client.connection_pool._made) == 1 else 1)  # type: ignore[attr-defined]
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for one in held:
        one.send_command("PING")
        assert one.read_response() == b"PONG"
        link.give_up(one)


def test_a_server_that_takes_no_more_clients_is_named_and_asked_again(
    url: str, server: redis.Redis
) -> None:
    had = str(server.config_get("maxclients")["maxclients"])
    policy = {"interval_start": 0.0, "interval_max": 0.0, "max_retries": 10_000}
    with TaskApp("tests", broker=url) as app:
        server.config_set("maxclients", len(server.client_list()))
        try:
            with pytest.raises(LinkError, match="max number of clients reached"):
                app.send_task("add", retry=False)

            def again(*_: Any) -> None:
                server.config_set("maxclients", had)

            thread = threading.Timer(0.05, again)
            thread.start()
            assert app.send_task("add", retry_policy=policy)
            thread.join()
        finally:
            server.config_set("maxclients", had)


@pytest.mark.parametrize("most", [1, 0, -5, 2.5, "x"])
def test_a_limit_that_cannot_be_is_refused(most: Any) -> None:
    with pytest.raises(ConfigError, match=r"TaskApp options: .*max_connections"):
        TaskApp("tests", broker="redis://localhost", max_connections=most)
    with pytest.raises(ConfigError, match=r"max_connections=.* must be 2 or more"):
        TaskApp("tests", broker=f"redis://localhost?max_connections={most}")


def test_a_connection_that_another_thread_has_closed_is_an_error_of_the_server(url: str) -> None:
    """As `close` and a change of the broker do; it is used again all the same."""
    link = Link(url=url, timeout_s=DEADLINE_S)
    connection = link._pool.take()
    link._pool.disconnect()
    link._pool.put(connection)
    with pytest.raises(redis.ConnectionError, match="closed meanwhile"):
        link.call("PING")
    assert link.call("PING") in (b"PONG", "PONG")
    link.close()
