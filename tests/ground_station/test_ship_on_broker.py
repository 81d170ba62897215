"""A program's ship by its broker: a real queue and worker, and the ship in lockstep behind them."""

import asyncio
import json
import os
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, closing
from typing import Any

import msgspec
import pytest

from blimp.actions import ACTIONS
from blimp.errors import (
    LinkError,
    LinkLost,
    NotAuthorised,
    NotInControl,
    OutcomeUnknown,
    Refused,
)
from blimp.queue.redis.client import RedisServer
from blimp.tasks.authority import pilots
from blimp.tasks.client import VehicleClient
from blimp.tasks.pilot_link import heartbeat_key
from blimp.types import Command, OutcomeState, Snapshot
from ground_station.ship import Ship
from ground_station.ship_on_broker import PRESSES, WAITING, BrokerTransport
from tests.ground_station.ship import FlyingShip
from tests.queue.conftest import wait_until
from tests.signals import stop_process

pytestmark = pytest.mark.long  # seconds of computing each
DEADLINE_S = 60.0


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """Nothing is found by itself, and no control was taken before."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/nonexistent")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def acted(ship: FlyingShip) -> list[str]:
    """Return the names of the commands that reached a ship, once for each id."""
    return list({command.id: command.name for command in ship.mailbox.commands}.values())


@pytest.fixture
def stopped(mortal: FlyingShip) -> Iterator[Callable[[], None]]:
    """Stop the broker's process; it goes on with the end of the test at the latest."""
    yield lambda: stop_process(mortal.broker.pid)
    os.kill(mortal.broker.pid, signal.SIGCONT)


def connect(twin: FlyingShip, *, outage_s: float = 20.0) -> AbstractAsyncContextManager[Ship]:
    return Ship.connect(twin.vehicle, broker=twin.broker.url, outage_s=outage_s)


async def until(is_so: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not is_so():
            await asyncio.sleep(0.01)
    assert is_so(), what


def test_a_cancelled_command_is_sent_once_and_before_those_after_it(
    twin: FlyingShip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On board both may begin side by side: nobody waits for the first."""
    sent = []
    send = VehicleClient.send

    def noted(client: VehicleClient, name: str, *arguments: Any, **options: Any) -> Any:
        sent.append(name)
        return send(client, name, *arguments, **options)

    async def fly() -> None:
        async with connect(twin) as ship:
            await ship.arm()
            await ship.takeoff(2.0)
            going = asyncio.create_task(ship.goto(5.0, 0.0, 2.0))
            await asyncio.sleep(0)  # it has begun, and is perhaps not sent yet
            going.cancel()
            await ship.hold()
            with pytest.raises(asyncio.CancelledError):
                await going
            await until(lambda: len(acted(twin)) == 4, "not all have come")
        assert sent == ["arm", "takeoff", "goto", "hold"]
        assert sorted(acted(twin)) == sorted(sent)

    monkeypatch.setattr(VehicleClient, "send", noted)
    asyncio.run(fly())


def test_a_stop_waits_for_nothing_else(twin: FlyingShip) -> None:
    """Not for the commands that wait, nor for threads that are all taken."""

    async def fly() -> None:
        async with connect(twin) as ship:
            await ship.arm()
            await ship.takeoff(2.0)
            going = asyncio.create_task(ship.goto(10.0, 0.0, 2.0))
            await until(lambda: acted(twin)[-1] == "goto", "it does not go")
            transport, ended = ship._transport, threading.Event()
            assert isinstance(transport, BrokerTransport)
            transport._sending.submit(ended.wait)
            for _ in range(WAITING):
                transport._waiting.submit(ended.wait)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    assert (await ship.estop()).state == "SUCCESS"
            finally:
                ended.set()
            assert twin.ship.snapshot().killed
            with pytest.raises(Refused):
                await going

    asyncio.run(fly())


def test_what_waits_for_its_turn_while_a_stop_is_asked_for_is_not_issued_after_it(
    twin: FlyingShip,
) -> None:
    """A blocked broker holds the sending thread; the stop does not wait for it."""

    async def fly() -> None:
        async with connect(twin) as ship:
            await ship.arm()
            transport, ended = ship._transport, threading.Event()
            assert isinstance(transport, BrokerTransport)
            transport._sending.submit(ended.wait)
            try:
                async with asyncio.TaskGroup() as tasks:
                    late = [
                        tasks.create_task(_refusal(call))
                        for call in (
                            ship.arm(),
                            ship.takeoff(2.0),
                            ship.velocity(0.1, 0.0, 0.0, 1.0),
                        )
                    ]
                    await asyncio.sleep(0)
                    assert (await ship.estop()).state == "SUCCESS"
                    twin.mailbox.fly(1.0)
                    fresh = tasks.create_task(ship.arm())
                    await asyncio.sleep(0)
                    ended.set()
            finally:
                ended.set()
            assert [one.result().split(":")[0] for one in late] == ["arm", "takeoff", "velocity"]
            assert all("before an emergency stop" in one.result() for one in late)
            assert (await fresh).state == "SUCCESS"
            assert acted(twin) == ["arm", "estop", "arm"]

    asyncio.run(fly())


def test_an_arm_counts_as_issued_when_it_was_asked_for(twin: FlyingShip) -> None:
    """Its issue was stamped after the wait for a blocked broker, so it undid a stop before."""
    with closing(VehicleClient(twin.broker.url, twin.vehicle)) as client:
        asked_s = client.clock.now_s() - 5.0  # this ship's time passes faster
        assert client.estop().state == "SUCCESS"
        with client.send("arm", asked_s=asked_s, ttl_s=30.0) as sent:
            assert "before the emergency stop" in sent.wait(DEADLINE_S).reason
        assert twin.ship.snapshot().killed
        twin.mailbox.fly(1.0)
        with client.send("arm", asked_s=client.clock.now_s()) as sent:
            assert sent.wait(DEADLINE_S).state == "SUCCESS"


def test_a_flood_of_stops_is_one_press_for_all_that_are_not_begun(twin: FlyingShip) -> None:
    async def fly() -> None:
        async with connect(twin) as ship:
            transport, ended, begun = ship._transport, threading.Event(), threading.Semaphore(0)
            assert isinstance(transport, BrokerTransport)

            def press() -> None:
                begun.release()
                ended.wait(DEADLINE_S)

            for _ in range(PRESSES):
                transport._stopping.submit(press)
            for _ in range(PRESSES):
                assert begun.acquire(timeout=DEADLINE_S)
            presses = [transport.estop() for _ in range(1000)]
            waiting = transport._stopping._work_queue.qsize()
            ended.set()
            assert waiting == 1
            assert {(await press).id for press in presses} == {(await presses[0]).id}
            assert (await transport.estop()).id != (await presses[0]).id

    asyncio.run(fly())


def test_a_link_lost_in_the_middle_ends_no_command_and_blocks_no_loop(
    mortal: FlyingShip, stopped: Callable[[], None]
) -> None:
    async def fly() -> None:
        async with connect(mortal, outage_s=60.0) as ship, asyncio.TaskGroup() as tasks:
            await ship.arm()
            await ship.takeoff(2.0)
            going = tasks.create_task(ship.goto(9.0, 0.0, 2.0))
            await until(lambda: acted(mortal)[-1] == "goto", "it does not go")
            stopped()
            for _ in range(4):  # 6 s each; the wait for the end of `goto` looks after 1 s, too
                asking = tasks.create_task(_error(ship.ping()))
                turns = 0
                while not asking.done():
                    await asyncio.sleep(0.01)
                    turns += 1
                assert isinstance(await asking, LinkError)
                assert turns > 20  # of the loop
            assert not going.done()
            os.kill(mortal.broker.pid, signal.SIGCONT)
            assert (await going).state == "SUCCESS"
        assert acted(mortal).count("goto") == 1

    with mortal.worker():
        asyncio.run(fly())


def test_a_link_lost_for_too_long_says_that_the_outcome_is_unknown_and_where_to_ask(
    mortal: FlyingShip, stopped: Callable[[], None]
) -> None:
    async def fly() -> None:
        async with connect(mortal, outage_s=0.5) as ship:
            await ship.arm()
            await ship.takeoff(2.0)
            going = asyncio.create_task(ship.goto(9.0, 0.0, 2.0))
            await until(lambda: acted(mortal)[-1] == "goto", "it does not go")
            stopped()
            with pytest.raises(
                LinkLost, match=r"goto: .*lost for 0.5 s.*outcome is unknown"
            ) as lost:
                await going
            os.kill(mortal.broker.pid, signal.SIGCONT)
            async with asyncio.timeout(DEADLINE_S):
                while (await ship.result(lost.value.id)).state != "SUCCESS":
                    await asyncio.sleep(0.05)

    with mortal.worker():
        asyncio.run(fly())


def test_a_command_without_an_end_says_so_in_time_and_when_its_ship_is_closed(
    twin: FlyingShip, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fly() -> None:
        async with connect(twin) as ship:
            await ship.arm()
            with pytest.raises(OutcomeUnknown, match="takeoff: last known state"):
                await ship.takeoff(30.0)
            going = asyncio.create_task(ship.goto(9.0, 0.0, 2.0))
            await asyncio.sleep(0)
        with pytest.raises((OutcomeUnknown, LinkError), match="closed"):
            await going
        with pytest.raises(LinkError, match="closed"):
            await ship.ping()

    row = msgspec.structs.replace(ACTIONS["takeoff"], wait_s=1.0)  # in lockstep the ship needs 4 s
    monkeypatch.setitem(ACTIONS, "takeoff", row)
    asyncio.run(fly())


def test_of_two_programs_one_has_control_and_the_other_hears_who(twin: FlyingShip) -> None:
    async def fly() -> None:
        async with connect(twin) as ours, connect(twin) as theirs:
            await theirs.arm()  # while nobody has control everybody commands it
            async with ours.control(pilot="alice"):
                await ours.takeoff(2.0)
                words = f"alice holds control of {twin.vehicle}"
                with pytest.raises(NotInControl, match=words):
                    await theirs.goto(1.0, 0.0, 2.0)
                with pytest.raises(NotAuthorised, match=words):
                    async with theirs.control(pilot="bob"):
                        pass
                assert (await theirs.ping()).state == "SUCCESS"
                waiting = asyncio.create_task(_hold_in_control(theirs))
                await ours.hold()
            assert await waiting == "SUCCESS"
            with pytest.raises(RuntimeError, match="of its own"):
                async with ours.control(pilot="alice"):
                    raise RuntimeError("of its own")
            async with theirs.control(pilot="bob"):  # an error gives it back, too
                await theirs.land()

    asyncio.run(fly())


def test_control_that_is_given_up_while_it_is_waited_for_is_given_back(twin: FlyingShip) -> None:
    async def fly() -> None:
        async with connect(twin) as ours, connect(twin) as theirs:
            async with ours.control():
                waiting = asyncio.create_task(_hold_in_control(theirs))
                with closing(RedisServer(twin.broker.url)) as server:
                    pool = pilots(server, twin.vehicle)
                    await until(lambda: pool.stats().waiting, "it does not wait")
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            async with ours.control(wait_s=DEADLINE_S):
                assert (await ours.arm()).state == "SUCCESS"

    asyncio.run(fly())


def test_copies_of_600_stops_that_a_queue_keeps_stop_no_ship_that_was_armed_since(
    twin: FlyingShip,
) -> None:
    with VehicleClient(twin.broker.url, twin.vehicle) as client, ThreadPoolExecutor(32) as presses:
        replies = list(presses.map(lambda _: client.estop(timeout_s=DEADLINE_S), range(600)))
        assert {reply.state for reply in replies} == {"SUCCESS"}
        arm = twin.mailbox.call(Command(id="arm", name="arm"), timeout_s=DEADLINE_S)
        assert arm is not None
        assert arm.state is OutcomeState.DONE
        for reply in replies:  # each copy in the queue has run, or is too old to
            copy = f"{reply.id}.queue"
            wait_until(lambda copy=copy: client.result(copy).state != "TIMEOUT", "it waits still")
        assert twin.mailbox.snapshot().armed  # type: ignore[union-attr]
        assert client.estop(timeout_s=DEADLINE_S).state == "SUCCESS"
        assert twin.mailbox.snapshot().killed  # type: ignore[union-attr]


def test_the_ship_hears_its_pilots_heartbeat_from_the_first_command_to_the_goodbye(
    twin: FlyingShip,
) -> None:
    def heartbeats() -> list[dict[str, object]]:
        with closing(RedisServer(twin.broker.url)) as server:
            found: Any = server.ask(lambda client: client.xrange(heartbeat_key(twin.vehicle)))
        return [json.loads(fields[b"heartbeat"])["payload"] for _, fields in found]

    async def fly() -> None:
        async with connect(twin) as ship:
            await ship.ping()
            await ship.parameters()
            assert heartbeats() == []  # who only looks is not missed
            await ship.arm()
            await until(heartbeats, "none comes")
            assert heartbeats()[0]["token"] is None
            async with ship.control():
                await until(lambda: heartbeats()[-1]["token"], "none comes under control")
                token = heartbeats()[-1]["token"]
            assert heartbeats()[-1] | {"token": token, "ends": True} == heartbeats()[-1]
            count = len(heartbeats())
            await ship.disarm()
            await until(lambda: len(heartbeats()) > count, "none comes after it")
        assert heartbeats()[-1]["ends"] is True

    asyncio.run(fly())


def test_telemetry_is_the_newest_goes_on_after_an_outage_and_ends_with_the_ship(
    mortal: FlyingShip, stopped: Callable[[], None]
) -> None:
    async def fly() -> None:
        seen: list[Snapshot] = []

        async def look(ship: Ship) -> None:
            nonlocal seen
            async for state in ship.telemetry(hz=50):
                seen += [state]

        async with connect(mortal) as ship:
            with pytest.raises(LinkError, match="not heard within 5 s"):
                await ship.state()  # what was published is old, and says nothing of now
            with mortal.telling() as silent:
                looking = asyncio.create_task(look(ship))
                await until(lambda: len(seen) > 5, "nothing is heard")
                assert (await ship.state()).t_s >= seen[-1].t_s
                silent.set()
                stopped()
                with pytest.raises(LinkError):
                    await ship.ping()
                os.kill(mortal.broker.pid, signal.SIGCONT)
                before = len(seen)
                silent.clear()
                await until(lambda: len(seen) > before + 5, "it does not go on")
            for _ in range(10):  # all that was published is seen by then
                await ship.ping()
        await looking  # it has ended, without an error
        times = [state.t_s for state in seen]
        assert times == sorted(set(times))

    with mortal.worker():
        mortal.publish(age_s=100.0)
        asyncio.run(fly())


async def _error(awaitable: object) -> BaseException:
    try:
        await awaitable  # type: ignore[misc]
    except LinkError as error:
        return error
    raise AssertionError("no LinkError")


async def _refusal(awaitable: Awaitable[object]) -> str:
    with pytest.raises(Refused) as refused:
        await awaitable
    return str(refused.value)


async def _hold_in_control(ship: Ship) -> str:
    async with ship.control(pilot="bob", wait_s=DEADLINE_S):
        return (await ship.hold()).state
