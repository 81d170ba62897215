"""Tenants of one queue begin in turn, and nothing of theirs is lost or doubled."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from blimp.errors import ConfigError, MessageError
from blimp.queue import TaskApp, TaskContext, group
from blimp.queue.redis.keys import Keys
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until, working
from tests.queue.server_view import Look

Start = Callable[..., WorkerProcess]
APP = "tests.queue.fair_app:app"
KEYS = Keys().queue("fair")


@pytest.fixture
def fair(url: str) -> Any:
    """An app that sends what the worker processes run."""
    with TaskApp("fair", broker=url, result_backend=url) as app:
        app.task(name="share", fair_key=lambda tenant: tenant)(lambda tenant, number: None)
        yield app


def lines_of(directory: Path, name: str) -> list[tuple[str, int]]:
    """Return tenant and number of each task that wrote a line into the file."""
    try:
        lines = (directory / name).read_text().splitlines()
    except FileNotFoundError:
        return []
    return [(tenant, int(number)) for tenant, number in map(str.split, lines)]


def test_three_tenants_begin_in_turn_whatever_each_has_sent(
    fair: TaskApp, url: str, tmp_path: Path, start_worker: Start, look: Look
) -> None:
    share = fair.tasks["share"]
    handles = fair.send_many(share.s("a", number) for number in range(500))
    handles += [share.delay("b", number) for number in range(3)]
    handles += fair.send_many(share.s("c", number) for number in range(50))
    assert look.waiting("fair") == 553
    start_worker(url, app=APP, options="--sync-workers 1 --prefetch 1")
    assert [one.get(DEADLINE_S) for one in handles[-3:]] == [47, 48, 49]
    order = lines_of(tmp_path, "begun")
    assert order[:9] == [(tenant, number) for number in range(3) for tenant in "abc"]
    assert order[9:103] == [(tenant, number) for number in range(3, 50) for tenant in "ac"]
    assert handles[499].get(DEADLINE_S) == 499
    assert lines_of(tmp_path, "begun")[103:] == [("a", number) for number in range(50, 500)]


def test_killed_workers_lose_nothing_and_double_nothing(
    fair: TaskApp, url: str, tmp_path: Path, start_worker: Start, look: Look
) -> None:
    """Two tasks run at each kill, and others are prefetched: the two run again, and no others."""
    share, hold, kills = fair.tasks["share"], tmp_path / "hold", 3
    handles = fair.send_many(share.s("abc"[n % 3], n) for n in range(300))
    options = {"app": APP, "options": "--sync-workers 2"}

    lines = partial(lines_of, tmp_path)

    def ended() -> int:
        return 300 - look.waiting("fair") - look.in_flight(app="fair")

    for kill in range(1, kills + 1):
        before = ended()
        worker = start_worker(url, name=f"w{kill // 2}", **options)  # one comes again by its name
        wait_until(partial(lambda least: ended() > least, before + 5), "no more end")
        hold.touch()
        wait_until(partial(lambda n: len(lines("held")) == n, 2 * kill), "no two run")
        acknowledged = partial(lambda n: ended() == len(lines("begun")) - n, 2 * kill)
        wait_until(acknowledged, "what has ended is not acknowledged")
        worker.kill()
        hold.unlink()
    assert look.waiting("fair") > 0
    start_worker(url, name="last", **options)
    assert [one.get(DEADLINE_S) for one in handles] == list(range(300))
    again = Counter(lines("held"))
    once = Counter({("abc"[n % 3], n): 1 for n in range(300)})
    assert Counter(lines("begun")) == once + again
    wait_until(lambda: look.in_flight(app="fair") == 0, "something is left")
    assert look.waiting("fair") == look.dead("fair") == 0
    assert not look.server.exists(KEYS.turns, KEYS.tenants)


def test_a_retry_and_what_follows_keep_their_tenants(app: TaskApp) -> None:
    tenants: list[tuple[str, Any]] = []

    @app.task(name="it", bind=True, fair_key="{tenant}")
    def it(context: TaskContext, tenant: str) -> str:
        tenants.append((tenant, context.message.headers.get("blimp_fair")))
        if context.message.retries < 1:
            raise context.retry(countdown=0.0)
        return "after"

    @app.task(name="free", bind=True)
    def free(context: TaskContext, tenant: str) -> None:
        tenants.append(("free", context.message.headers.get("blimp_fair")))

    handle = (it.s("b") | it.s()).apply_async()
    with working(app):
        handle.get(DEADLINE_S)
        (it.si("b") | free.s()).apply_async().get(DEADLINE_S)
    assert tenants == [
        *[("b", "b")] * 2, *[("after", "after")] * 2, *[("b", "b")] * 2, ("free", None)
    ]  # fmt: skip


def test_a_program_without_the_task_names_the_tenant(app: TaskApp, server: redis.Redis) -> None:
    app.send_task("elsewhere", headers={"blimp_fair": "ada"})
    assert server.zrange(Keys().queue("tests").tenants, 0, -1) == [b"2:ada"]


@pytest.mark.parametrize("given", ["", "x" * 256, "a\nb", 7])
def test_a_tenant_that_no_worker_would_read_is_refused_at_its_sender(
    app: TaskApp, server: redis.Redis, given: object
) -> None:
    it = app.task(name="it", fair_key="a")(print)
    headers = {"blimp_fair": given}
    for send in (
        lambda: app.send_task("it", headers=headers),
        lambda: app.send_task("elsewhere", headers=headers),
        lambda: it.apply_async(headers=headers),
        lambda: app.send_many([it.s().set(headers=headers)]),
        lambda: group(it.s().set(headers=headers)).apply_async(),
    ):
        with pytest.raises(MessageError, match=r"header 'blimp_fair' of '.*: must be 1 to 255 "):
            send()
    assert not server.keys("blimp:queue:*")


def test_signed_scheduled_and_urgent_messages_have_turns(url: str) -> None:
    order: list[str] = []
    with TaskApp("tests", broker=url, result_backend=url, signing_key="k" * 32) as app:
        it = app.task(name="it", fair_key="{tenant}")(
            lambda tenant, n: order.append(f"{tenant}{n}")
        )
        handles = app.send_many(it.s("a", n) for n in range(3))
        handles.append(it.apply_async(("b", 9), countdown=0.001))
        handles.append(it.apply_async(("c", 7), priority=3))
        with working(app, sync_workers=1, prefetch=1):
            for one in handles:
                one.get(DEADLINE_S)
    assert order[0] == "c7"
    assert order.index("b9") <= 3
    assert [one for one in order if one[0] == "a"] == ["a0", "a1", "a2"]


def test_where_it_cannot_be_it_is_refused(app: TaskApp) -> None:
    with pytest.raises(ConfigError, match="fair_key 3: must be a text or a function"):
        app.task(name="it", fair_key=3)(print)  # type: ignore[call-overload]
    other = TaskApp("other", broker="memory://").task
    with pytest.raises(ConfigError, match="'it': fair_key needs a Redis or Valkey broker, and the"):
        other(name="it", fair_key="a")(print)
    it = app.task(name="it", fair_key=lambda size: "x" * (10 // size))(lambda size: size)
    with pytest.raises(MessageError, match="fair_key of 'it': ZeroDivisionError"):
        it.delay(0)
    for send in (it.delay, lambda size: app.send_many([it.s(size)])):
        with pytest.raises(MessageError, match="fair_key of 'it' '': must be 1 to 255 printable"):
            send(11)
