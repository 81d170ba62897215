"""A worker that is stopped for longer than its lease, and woken: what it does counts no more."""

import signal

import pytest

from blimp.queue import TaskApp
from tests.faults.conftest import Fork
from tests.faults.ground import Ground
from tests.faults.motor import What
from tests.faults.server_side import ServerSide
from tests.queue.conftest import DEADLINE_S
from tests.repeating import until


def count(ground: Ground, what: What) -> int:
    ground.journal.read()
    return sum(one.what is what for one in ground.journal.heard)


@pytest.mark.parametrize("first", ["successor", "zombie"])
def test_a_zombies_result_and_effect_are_refused(
    ground: Ground, faults: TaskApp, side: ServerSide, fork: Fork, first: str
) -> None:
    """The first that comes to the motor moves it; it never moves twice."""
    zombie = fork("a")
    handle = faults.send_task("hold", (str(ground.directory / "go"),), task_id="the-id")
    until(lambda: count(ground, What.BEGAN) == 1, "it did not begin")
    zombie.send(signal.SIGSTOP)
    successor = fork("b")
    until(lambda: count(ground, What.BEGAN) == 2, "nobody took it over")
    if first == "zombie":
        go(ground, 1)
        zombie.send(signal.SIGCONT)
        until(lambda: count(ground, What.ENDED) == 1, "the zombie did not wake")
        until(lambda: "result refused" in log(ground, "a"), "its result was not refused")
        assert not handle.ready()
        go(ground, 2)
        result = handle.get(DEADLINE_S)
    else:
        go(ground, 1, 2)
        result = handle.get(DEADLINE_S)
        zombie.send(signal.SIGCONT)
        until(lambda: count(ground, What.ENDED) == 2, "the zombie did not wake")
    assert result is True
    successor.kill()
    # The zombie ends this one after the other, so that one's end was refused by now.
    assert faults.send_task("nap", (0.0,)).get(DEADLINE_S) == 0.0
    assert handle.record.worker == "b"
    assert count(ground, What.TURN) == 2
    turns = [one for one in ground.journal.heard if one.what is What.TURN]
    assert sorted(one.fence for one in turns) == [1, 2]
    assert sum(one.applied for one in turns) == 1
    refused = [one.fence for one in turns if one.refused]
    assert refused == ([] if first == "zombie" else [1])
    assert side.messages_left() == 0


def go(ground: Ground, *fences: int) -> None:
    """Let the deliveries of these fences turn the motor."""
    for fence in fences:
        (ground.directory / f"go.{fence}").touch()


def log(ground: Ground, name: str) -> str:
    return (ground.directory / f"{name}.log").read_text()


def test_a_zombie_that_wakes_goes_on_as_any_worker(
    ground: Ground, faults: TaskApp, side: ServerSide, fork: Fork
) -> None:
    zombie = fork("a")
    faults.send_task("hold", (str(ground.directory / "go"),))
    until(lambda: count(ground, What.BEGAN) == 1, "it did not begin")
    zombie.send(signal.SIGSTOP)
    successor = fork("b")
    until(lambda: count(ground, What.BEGAN) == 2, "nobody took it over")
    go(ground, 1, 2)
    until(lambda: side.messages_left() == 0, "the successor did not end it")
    successor.kill()
    zombie.send(signal.SIGCONT)
    assert faults.send_task("nap", (0.0,)).get(DEADLINE_S) == 0.0


def test_alone_it_finds_its_own_messages_its_own(
    ground: Ground, faults: TaskApp, side: ServerSide, fork: Fork
) -> None:
    """Nobody took over while it slept: it ends what it had, once."""
    worker = fork("a")
    handle = faults.send_task("hold", (str(ground.directory / "go"),))
    until(lambda: count(ground, What.BEGAN) == 1, "it did not begin")
    worker.send(signal.SIGSTOP)
    born_s = faults.broker_clock.now_s()
    until(lambda: faults.broker_clock.now_s() > born_s + 1.0, "the server's clock stands")
    worker.send(signal.SIGCONT)
    go(ground, 1)
    assert handle.get(DEADLINE_S) is True
    assert count(ground, What.BEGAN) == 1
