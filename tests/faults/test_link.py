"""A link that breaks at one command, under a worker and a server that live on."""

import threading
from collections.abc import Callable, Iterator

import pytest

from blimp.tasks import State, TaskApp, TaskContext
from tests.faults.ground import Ground
from tests.faults.proxy import Command, Proxy
from tests.tasks.conftest import DEADLINE_S, working


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


@pytest.fixture
def proxy(ground: Ground) -> Iterator[Proxy]:
    proxy = Proxy(path=ground.directory / "p", upstream=ground.directory / "b" / "broker.sock")
    yield proxy
    proxy.close()


@pytest.mark.parametrize("refuse", [0, 6], ids=["cut", "away"])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("kind", ["GET", "SET"])
def test_a_task_whose_guards_cannot_ask_the_broker_waits_and_runs_once(
    ground: Ground, proxy: Proxy, kind: str, side: str, refuse: int
) -> None:
    """What its middleware needs to know is asked again; it has not failed, nor begun."""
    url = f"redis+socket://{ground.directory / 'p'}?virtual_host=0"
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
