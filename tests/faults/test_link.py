"""A link that breaks at one command, under a worker and a server that live on."""

import threading
from collections.abc import Callable

import pytest

from blimp.errors import LinkError
from blimp.queue import State, TaskApp, TaskContext
from tests.faults.ground import Ground
from tests.faults.proxy import Command, Proxy
from tests.queue.conftest import DEADLINE_S, working
from tests.repeating import until


class Cut:
    """Breaks the connection at the first command of a kind, and every one for a while after."""

    def __init__(self, kind: str, *, side: str, refuse: int) -> None:
        self._kind = kind
        self._side = side
        self._left = refuse
        self.fired = threading.Event()

    def before(self, command: Command) -> bool:
        if self.fired.is_set() and self._left:
            self._left -= 1
            return False
        return not (self._side == "before" and self._fires(command))

    def after(self, command: Command) -> bool:
        return not (self._side == "after" and self._fires(command))

    def _fires(self, command: Command) -> bool:
        if command.kind != self._kind or self.fired.is_set():
            return False
        self.fired.set()
        return True


@pytest.mark.parametrize("refuse", [0, 6], ids=["cut", "unreachable"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("kind", ["GET", "SET"])
def test_a_task_whose_guards_cannot_ask_the_broker_waits_and_runs_once(
    ground: Ground, proxy: Proxy, through_proxy: str, kind: str, side: str, refuse: int
) -> None:
    """What its middleware needs to know is asked again; it has not failed, nor begun."""
    url = through_proxy
    runs: list[int] = []
    with TaskApp("tests", broker=url, result_backend=url) as app:

        @app.task(name="once", bind=True, idempotent=False)
        def once(context: TaskContext) -> int:
            runs.append(context.fence)
            return context.fence

        cut = Cut(kind, side=side, refuse=refuse)
        with working(app):
            proxy.fault = cut
            once.apply_async(task_id="the-id")
            wait_for = observe(ground)
            assert wait_for("the-id") is State.SUCCESS
    assert cut.fired.is_set()
    assert len(runs) == 1


def observe(ground: Ground) -> Callable[[str], State]:
    """Return what waits for a result past the proxy."""
    app = TaskApp("tests", broker=ground.url, result_backend=ground.url)

    def wait(id: str) -> State:
        with app:
            return app.result(id).wait(DEADLINE_S).state

    return wait


def test_a_half_open_link_is_noticed_and_left_and_nothing_on_it_is_lost(
    ground: Ground, proxy: Proxy, through_proxy: str
) -> None:
    """Both ends think that they are connected, and nothing comes through: no error, no end."""
    busy, go = threading.Event(), threading.Event()
    runs: list[str] = []
    app = TaskApp("tests", broker=through_proxy, result_backend=through_proxy, timeout_s=0.3)
    sender = TaskApp("tests", broker=ground.url, result_backend=ground.url)

    @app.task(name="long", bind=True)
    def long(context: TaskContext) -> str:
        runs.append(context.id)
        busy.set()
        go.wait(DEADLINE_S)
        return "ended"

    @app.task(name="quick", bind=True)
    def quick(context: TaskContext) -> None:
        runs.append(context.id)

    with app, sender, working(app) as worker:
        before = sender.send_task("long", task_id="before")
        assert busy.wait(DEADLINE_S)
        proxy.swallow = True
        during = sender.send_task("quick", task_id="during")
        go.set()  # its end cannot be reported
        with pytest.raises(LinkError):
            app.broker_link.ask(lambda client: client.get("x"))  # in time, not for ever
        until(lambda: worker.counts["reconnects"] > 0, "it did not notice")
        assert not before.ready()
        proxy.swallow = False
        assert before.get(DEADLINE_S) == "ended"
        assert during.get(DEADLINE_S) is None
    assert sorted(runs) == ["before", "during"]


def test_each_half_of_a_link_may_be_the_open_one(
    ground: Ground, proxy: Proxy, through_proxy: str
) -> None:
    """Nothing reaches the server, or no answer comes back: a publish says so in time."""
    app = TaskApp("tests", broker=through_proxy, timeout_s=0.3)
    with app:
        app.send_task("noop")
        for side in ("before", "after"):
            proxy.fault = Swallow(side)
            with pytest.raises(LinkError):
                app.send_task("noop", task_id=side)
            proxy.fault = None
            app.send_task("noop", task_id=f"{side}-again")


class Swallow:
    """Lets nothing by on one side, and keeps the connection."""

    def __init__(self, side: str) -> None:
        self._side = side

    def before(self, command: Command) -> bool | None:
        return None if self._side == "before" else True

    def after(self, command: Command) -> bool | None:
        return None if self._side == "after" else True
