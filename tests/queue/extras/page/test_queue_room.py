"""Who may ask and change what, and what is said of a wrong request."""

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import redis

from blimp.queue import TaskApp
from blimp.queue.extras.page.queue_room import ACTIONS
from blimp.queue.redis.keys import Keys
from blimp.web.answers import MAX_BODY_BYTES
from tests.forked import ran
from tests.queue.conftest import DEADLINE_S, WorkerProcess, wait_until
from tests.queue.extras.page.conftest import APP, PageProcess


def test_nothing_is_changed_without_a_token_by_get_or_from_another_page(
    url: str, start_page: Callable[..., PageProcess]
) -> None:
    page = start_page(url)
    port = urlsplit(page.url).port
    with TaskApp("shop", broker=url, result_backend=url) as shop:
        shop.send_task("shop.pay", ["order"])
    purge = {"id": "shop"}
    assert page.ask("/api/queue", token="")[0] == 401
    assert page.ask("/api/queue/task?id=x", token="x" * 32)[0] == 401
    assert page.ask("/api/queue/purge", purge, token="")[0] == 401
    assert page.ask("/api/queue/purge?id=shop")[0] == 404
    assert page.ask("/api/queue/purge", purge, Host=f"evil.example:{port}")[0] == 421
    assert page.ask("/api/queue/purge", purge, Origin="http://evil.example")[0] == 403
    assert page.ask("/api/queue/purge", purge, Sec_Fetch_Site="cross-site")[0] == 403
    read_only = start_page(url, "--read-only")
    for action in ACTIONS:
        status, answer = read_only.ask(f"/api/queue/{action}", purge)
        assert (status, "read-only" in answer["reason"]) == (403, True), action
    status, found = read_only.ask("/api/queue")
    assert (status, found["may_command"], found["queues"]["shop"]["ready"]) == (200, False, 1)
    assert page.ask("/api/queue/purge", purge)[1]["result"] == "1 dropped"


def test_a_wrong_request_is_refused_in_words(
    url: str, start_page: Callable[..., PageProcess]
) -> None:
    page = start_page(url)
    for path, body, status, words in (
        ("/api/queue/explode", {"id": "shop"}, 404, "no action 'explode': requeue, drop"),
        ("/api/queue/retry", {"id": "../x"}, 400, "must be one that is shown"),
        ("/api/queue/retry", {"id": ["x"]}, 400, "must be one that is shown"),
        ("/api/queue/requeue", {"id": "1-1", "queue": 7}, 400, "queue 7: must be a name"),
        ("/api/queue/requeue", {"id": "1-1", "queue": "others"}, 404, "no queue 'others' of app"),
        ("/api/queue/purge", {"id": "others"}, 404, "no queue 'others' of app 'shop'"),
        ("/api/queue/run-schedule", {"id": "shop.pay"}, 404, "no schedule of task 'shop.pay'"),
        ("/api/queue/retry", {"id": "nobody"}, 404, "only a task that has ended"),
        ("/api/queue/purge", b"[", 400, "not an object of JSON"),
        ("/api/queue/purge", b" " * (MAX_BODY_BYTES + 1), 413, f"limit of {MAX_BODY_BYTES} bytes"),
        ("/api/queue/task?id=", None, 400, "must be that of a task"),
        (f"/api/queue/task?id={'x' * 101}", None, 400, "must be that of a task"),
    ):
        got, answer = page.ask(path, body)
        assert (got, words in answer["reason"]) == (status, True), (path, body, answer)
    letter = page.ask("/api/queue/drop", {"id": "1-1"})[1]
    assert (letter["state"], "somebody was faster" in letter["reason"]) == ("FAILURE", True)


def test_a_task_is_found_wherever_it_is_and_stays_there(
    url: str,
    server: redis.Redis,
    start_page: Callable[..., PageProcess],
    start_worker: Callable[..., WorkerProcess],
    tmp_path: Path,
) -> None:
    page = start_page(url)

    def found(id: str) -> str:
        place: str = page.ask(f"/api/queue/task?id={id}")[1]["place"]
        return place

    with TaskApp("shop", broker=url, result_backend=url) as shop:
        later = shop.send_task("shop.report", ["later"], countdown=3600.0)
        waits = shop.send_task("shop.report", ["soon"])
        streams = Keys().queue("shop").levels
        before = [server.xrange(one) for one in streams]
        assert found(later.id) == found(waits.id)
        assert found(waits.id) == "no worker consumes 'shop'; no worker of app 'shop' runs"
        assert [server.xrange(one) for one in streams] == before, "a search has moved it"
        assert "was not sent" in found("nobody")
        counts = page.ask("/api/queue")[1]["queues"]["shop"]
        assert (counts["ready"], counts["scheduled"]) == (1, 1)
        start_worker(url, app=APP)
        assert waits.get(timeout=DEADLINE_S) == "report of soon"
        assert found(waits.id) == ""
        packs = shop.send_task("shop.pack")
        wait_until((tmp_path / f"{packs.id}.began").exists, "it does not begin")
        assert found(packs.id).startswith("worker 'w' has it")

        def active() -> list[str]:
            workers = page.ask("/api/queue")[1]["workers"]
            return [one["id"] for one in workers["w"]["active"]] if "w" in workers else []

        # The page shows what it saw up to a second ago.
        wait_until(lambda: active() == [packs.id], "it is not shown as active")
        (tmp_path / f"{packs.id}.go").touch()


def test_the_page_ends_in_order_and_names_what_it_cannot_do(
    url: str, start_page: Callable[..., PageProcess]
) -> None:
    page = start_page(url)
    taken = str(urlsplit(page.url).port)
    for number in (signal.SIGTERM, signal.SIGINT):
        ending = start_page(url)
        assert ending.ask("/api/queue")[0] == 200  # in a thread, which must end, too
        assert ending.end(number) == 0
    for words, reason in (
        (("--port", taken), f"cannot listen on 127.0.0.1:{taken}"),
        (("--port", "65536"), "'65536': must be a whole number, 0 to 65,535"),
        (("--host", "nobody.invalid"), "nobody.invalid"),
    ):
        ended = ran(
            [sys.executable, "-m", "blimp.queue", "page", "-A", APP, *words], timeout=DEADLINE_S
        )
        assert (ended.returncode, reason in ended.stderr) == (2, True), ended.stderr
        assert "Traceback" not in ended.stderr
