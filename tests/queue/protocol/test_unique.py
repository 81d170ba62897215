"""A unique task: the same is not sent while its claim lasts, and whatever ends it frees that."""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from blimp.errors import ConfigError, Ignore, Interrupted, MessageError, Refused, Reject
from blimp.queue import AsyncResult, State, Task, TaskApp, TaskContext
from blimp.queue.brokers.base import MOST_DELIVERIES
from blimp.queue.brokers.streams.dead_letters import DeadLetters
from blimp.queue.brokers.streams.unique_claims import UniqueClaims
from blimp.queue.operations import open_session, requeue_dead
from blimp.queue.protocol.unique import HEADER, UniqueClaim, claim_of
from blimp.queue.redis.keys import GROUP, NOBODY, Keys
from tests.queue.conftest import DEADLINE_S, Held, wait_until, working
from tests.queue.server_view import Look

QUEUE = Keys().queue("tests")
LASTS: list[dict[str, Any]] = [{"unique_for": 60.0}, {"unique_until": "end"}]
lasts = pytest.mark.parametrize("lasts", LASTS, ids=["for", "end"])


def is_free(it: Task, first: AsyncResult, *args: Any) -> bool:
    return bool(it.delay(*args).id != first.id)


def test_of_many_senders_of_the_same_one_sends_it(url: str) -> None:
    ran: list[tuple[Any, ...]] = []
    begin = threading.Barrier(8)
    sent: list[AsyncResult] = []

    def define(app: TaskApp) -> Task:
        return app.task(name="it", unique_for=60.0)(lambda *args, by=1: ran.append((*args, by)))

    def send() -> None:
        with TaskApp("tests", broker=url, result_backend=url) as app:
            it = define(app)
            begin.wait(DEADLINE_S)
            sent.append(it.delay(1, by=2))
            sent.append(it.apply_async((1,), {"by": 2}, countdown=0.01))

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert len(sent) == 16
    assert len({one.id for one in sent}) == 1
    with TaskApp("tests", broker=url, result_backend=url) as app:
        it = define(app)
        others = [it.delay(), it.delay(1), it.delay(1, by=3), it.delay("1", by=2)]
        assert len({one.id for one in (*others, sent[0])}) == 5
        with working(app):
            app.result(sent[0].id).get(DEADLINE_S)
            assert it.delay(1, by=2) == sent[0]  # it has ended, and is not sent again
            for one in others:
                one.get(DEADLINE_S)
            it.delay("last").get(DEADLINE_S)
    assert Counter(ran) == Counter([(1,), (1, 1), (1, 2), (1, 3), ("1", 2), ("last", 1)])


def test_what_is_the_same_is_the_key_and_later_it_is_another(app: TaskApp, server: Any) -> None:
    ran: list[int] = []

    @app.task(name="it", unique_for=60.0, unique_key=lambda user: user)
    def it(user: str, number: int) -> int:
        ran.append(number)
        return number

    @app.task(name="template", unique_for=60.0, unique_key="{number}")
    def template(number: int, other: int = 0) -> None: ...

    @app.task(name="same", unique_until="end", unique_key=lambda user: user)
    def same(user: str) -> None: ...

    first = it.delay("ada", 1)
    assert it.delay("ada", 2) == first
    assert it.delay("bob", 3) != first
    elsewhere = it.apply_async(("ada", 1), queue="other")
    assert len({first.id, elsewhere.id, same.delay("ada").id}) == 3
    [digest] = [
        one for one, text in server.hgetall(QUEUE.unique).items() if first.id.encode() in text
    ]
    now_s = server.time()[0]
    assert 58 < float(server.zscore(QUEUE.unique_ends, digest)) / 1e3 - now_s < 62
    over = f"{now_s * 1000 - 2000} {first.id}\nit"  # as the server's clock will say
    server.hset(QUEUE.unique, digest, over)
    server.zadd(QUEUE.unique_ends, {digest: now_s * 1000 - 2000, "forgotten": 1})
    server.hset(QUEUE.unique, "forgotten", "1 a\nit")
    assert it.delay("ada", 4) != first
    assert server.hget(QUEUE.unique, "forgotten") is None
    assert template.delay(1, 2) == template.delay(1, 3) != template.delay(2, 2)
    with working(app):
        assert first.get(DEADLINE_S) == 1
        it.delay("last", 5).get(DEADLINE_S)
    assert ran == [1, 3, 4, 5]


def test_an_answer_that_is_lost_is_asked_for_again(app: TaskApp, look: Look) -> None:
    it = app.task(name="it", unique_until="end")(lambda: None)
    first = it.delay()
    sender: Any = app.publisher._sender()
    send, calls = sender.send_unique, []

    def send_twice(*args: Any) -> Any:  # what it sent first has ended meanwhile
        calls.append(send(*args))
        app.revoke(calls[-1])
        return send(*args)

    app.revoke(first.id)
    sender.send_unique = send_twice
    second = it.delay()
    assert calls == [second.id]
    assert second != first
    assert look.waiting() == 2


# --- what frees it -------------------------------------------------------------------------------


def fail(_: TaskContext) -> None:
    raise ValueError


def refuse(_: TaskContext) -> None:
    raise Refused("no")


def interrupt(_: TaskContext) -> None:
    raise Interrupted("cut off")


def ignore(_: TaskContext) -> None:
    raise Ignore


def reject(_: TaskContext) -> None:
    raise Reject("wrong")


def retry(context: TaskContext) -> None:
    context.retry(countdown=0.0, max_retries=2)


def replace(context: TaskContext) -> None:
    context.replace(context.task.app.get_task("fails").s())


@lasts
@pytest.mark.parametrize("end", [fail, refuse, interrupt, ignore, reject, retry, replace])
def test_any_end_without_success_frees_it(
    app: TaskApp, server: Any, end: Callable[[TaskContext], None], lasts: dict[str, Any]
) -> None:
    held: list[bool] = []
    first: list[AsyncResult] = []

    def run(context: TaskContext) -> None:
        held.append(not is_free(it, first[0]))
        end(context)

    def fails() -> None:
        held.append(not is_free(it, first[0]))
        raise ValueError

    it = app.task(name="it", bind=True, max_retries=0, **lasts)(run)
    app.task(name="fails", max_retries=0)(fails)
    first.append(it.delay())
    with working(app):
        wait_until(lambda: not server.hlen(QUEUE.unique), f"{end.__name__} does not free it")
    assert held == [True] * {"retry": 3, "replace": 2}.get(end.__name__, 1)
    assert is_free(it, first[0])


def test_a_success_frees_what_lasts_until_the_end(app: TaskApp, server: Any) -> None:
    held = Held()
    until_end = app.task(name="end", unique_until="end", ignore_result=True)(held.run)
    until_start = app.task(name="start", unique_until="start", ignore_result=True)(held.run)
    with working(app, sync_workers=2):
        for it, is_running_free in ((until_end, False), (until_start, True)):
            first = it.apply_async((), countdown=3600.0)
            assert not is_free(it, first)
            app.revoke(first.id)
            first = it.delay()
            assert held.began.wait(DEADLINE_S)
            assert is_free(it, first) is is_running_free
            held.go.set()
            wait_until(lambda: not server.hlen(QUEUE.unique), "it is not free")
            held.began.clear()
            held.go.clear()


@lasts
@pytest.mark.parametrize("terminate", [True, False])
def test_a_revocation_frees_it(
    app: TaskApp, server: Any, lasts: dict[str, Any], terminate: bool
) -> None:
    begun = threading.Event()

    def run(context: TaskContext) -> None:
        begun.set()
        assert context.revoked.wait(DEADLINE_S)

    it = app.task(name="it", bind=True, **lasts)(run)
    shared = app.task(name="shared", fair_key="a", **lasts)(lambda: None)
    for options in ({}, {"countdown": 60.0}):
        first = it.apply_async((), **options)
        app.revoke(first.id)
        assert not server.hlen(QUEUE.unique)
    first = shared.delay()
    app.revoke(first.id)
    assert not server.hlen(QUEUE.unique)
    if not terminate:
        return
    with working(app):
        running = it.delay()
        assert begun.wait(DEADLINE_S)
        app.revoke(running.id, terminate=True)
        wait_until(lambda: not server.hlen(QUEUE.unique), "it is not free")
        assert running.state is State.REVOKED


@lasts
def test_a_purge_and_a_deleted_queue_free_it(
    app: TaskApp, server: Any, lasts: dict[str, Any]
) -> None:
    level = QUEUE.levels[2]
    it = app.task(name="it", **lasts)(lambda number: number)
    shared = app.task(name="shared", fair_key="{number}", **lasts)(lambda number: number)
    in_flight, given_back, _ = [it.delay(number) for number in range(3)]
    server.xgroup_create(level, GROUP, "0", mkstream=True)
    server.xreadgroup(GROUP, "dead", {level: ">"}, count=2)
    back = server.xpending_range(level, GROUP, "-", "+", 2)[1]["message_id"]
    server.xclaim(level, GROUP, NOBODY, 0, [back])
    it.apply_async((3,), countdown=60.0)
    shared.delay(4)
    assert server.hlen(QUEUE.unique) == 5
    with open_session(app) as session:
        claims = UniqueClaims(session.store)
        assert session.store.purge(QUEUE) == 4
        assert [one.id for one in claims.held("tests", limit=9)] == [in_flight.id]
        assert not is_free(it, in_flight, 0)
        assert is_free(it, given_back, 1)
        session.store.delete(QUEUE)
        assert claims.held("tests", limit=9) == []
    assert is_free(it, in_flight, 0)


@lasts
def test_what_the_server_or_a_worker_gives_up_is_free(
    app: TaskApp, server: Any, look: Look, lasts: dict[str, Any]
) -> None:
    app.settings = msgspec.structs.replace(app.settings, unknown_task_wait_s=0.0)
    it = app.task(name="it", **lasts)(lambda number=0: number)
    old = it.apply_async((1,), ttl_s=1e-3)
    expired = it.apply_async((2,), expires=-1.0)
    it.delay(3)
    server.xgroup_create(QUEUE.levels[2], GROUP, "0", mkstream=True)
    last = server.xrevrange(QUEUE.levels[2], count=1)[0][0]
    server.xreadgroup(GROUP, "dead", {QUEUE.levels[2]: ">"})
    server.xclaim(QUEUE.levels[2], GROUP, "dead", 0, [last], idle=60_000, retrycount=99)
    del app.tasks["it"]
    gone = app.task(name="gone", **lasts)(lambda: None)
    gone.delay()
    del app.tasks["gone"]
    app.tasks["it"] = it
    with working(app):
        wait_until(lambda: not server.hlen(QUEUE.unique), "one is not free")
    assert (old.state, expired.state) == (State.EXPIRED, State.EXPIRED)
    assert look.dead() == 2
    assert MOST_DELIVERIES < 99


@lasts
def test_a_dead_letter_that_is_requeued_has_it_again_if_it_is_free(
    app: TaskApp, server: Any, look: Look, lasts: dict[str, Any]
) -> None:
    ran: list[str] = []

    def run(context: TaskContext) -> str:
        ran.append(context.id)
        if len(ran) < 3:
            raise Reject("once")
        return context.id

    it = app.task(name="it", bind=True, **lasts)(run)
    first = it.delay()
    with open_session(app) as session:
        letters = DeadLetters(store=session.store, queue="tests")
        for is_held in (True, False):
            with working(app):
                wait_until(lambda: len(letters) == 1, "no dead letter")
            other = None if is_held else it.delay()
            requeue_dead(app, letters, letters.list()[0])
            assert it.delay() == (first if is_held else other)
    assert other is not None
    with working(app):
        assert first.get(DEADLINE_S) == first.id
        assert other.get(DEADLINE_S) == other.id


def test_what_has_the_claim_of_another_frees_nothing(app: TaskApp, server: Any) -> None:
    it = app.task(name="it", unique_until="end")(lambda: None)
    first = it.delay()
    server.delete(QUEUE.unique)
    with working(app):
        second = it.apply_async((), countdown=60.0)
        first.get(DEADLINE_S)
        assert it.delay() == second


# --- what it cannot be ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"unique_for": 0}, "unique_for 0: must be"),
        ({"unique_for": True}, "unique_for True: must be"),
        ({"unique_for": 1e9}, "unique_for 1000000000.0: must be"),
        ({"unique_until": "done"}, r"unique_until 'done': must be one of \('start', 'end'\)"),
        ({"unique_until": "end", "unique_for": 1}, "unique_for and unique_until"),
        ({"unique_until": "end", "acks_late": False}, "unique_until and acks_late=False"),
        ({"unique_key": "a"}, "unique_key: for how long"),
        ({"unique_for": 1.0, "unique_key": 1}, "unique_key 1: must be a text or a function"),
        ({"unique_for": 1.0, "coalesce": True}, "a unique task and coalesce"),
        ({"unique_until": "end", "coalesce": True}, "a unique task and coalesce"),
    ],
)
def test_what_cannot_be_unique_is_refused(app: TaskApp, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        app.task(name="it", **options)(print)


def test_where_it_cannot_be_known_sending_is_refused(app: TaskApp) -> None:
    it = app.task(name="it", unique_for=60.0, unique_key=lambda size: 1 // size)(lambda size: size)
    with pytest.raises(MessageError, match="unique_key of 'it': ZeroDivisionError"):
        it.delay(0)
    with pytest.raises(MessageError, match=r"signatures\[0\]: 'it' is unique: it is sent alone"):
        app.send_many([it.s(1)])
    with pytest.raises(ConfigError, match="'it' is unique: it takes no coalesce"):
        it.apply_async((1,), coalesce="a")
    with TaskApp("tests", broker="memory://") as other:
        it = other.task(name="it", unique_until="end")(lambda size: size)
        with pytest.raises(ConfigError, match="a unique task needs a Redis or Valkey broker"):
            it.delay(1)


def test_a_claim_that_cannot_be_read_is_not_sent(app: TaskApp) -> None:
    with pytest.raises(MessageError, match="'blimp_unique' is 'x': no claim"):
        app.send_task("t", headers={"blimp_unique": "x"})


def test_a_claim_that_cannot_be_read_is_none() -> None:
    claim = UniqueClaim("end", "0" * 32, "a queue: of ours")
    assert claim_of({HEADER: claim.header}) == claim
    for header in (
        None,
        1,
        "",
        "end",
        f"never:{'0' * 32}:q",
        f"end:{'0' * 31}:q",
        f"end:{'0' * 32}:",
    ):
        assert claim_of({HEADER: header}) is None


def test_the_claims_of_a_queue_that_expires_go_with_it(app: TaskApp, server: Any) -> None:
    server.set(QUEUE.alive, "1", px=60_000)
    app.task(name="it", unique_until="end")(lambda: None).delay()
    assert 0 < server.pttl(QUEUE.unique) <= 60_000
