"""The ship of `ground_station.ship` for programs without coroutines.

Each method is that of the same name there, run in an event loop in a thread of its own. Any thread
may call, also while another one waits; Ctrl-C ends the wait, as cancelling a task does.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from blimp.closing import Closing
from blimp.types import Snapshot
from blimp.web.outcome import Outcome
from ground_station import ship
from ground_station.following import OUTAGE_S

P = ParamSpec("P")
if TYPE_CHECKING:
    from blimp.queue.resources import Grant
    from ground_station.session import Session
    from ground_station.ship_in_lockstep import Simulated

T = TypeVar("T")


class Loop(Closing):
    """An event loop in a thread."""

    def __init__(self) -> None:
        self._end = asyncio.Event()
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(started)), name="ship", daemon=True
        )
        self._thread.start()
        self._loop = started.result()

    async def _serve(self, started: Future[asyncio.AbstractEventLoop]) -> None:
        started.set_result(asyncio.get_running_loop())
        await self._end.wait()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns, or raise what it raises. Any thread."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def entered(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        value = self.run(_coroutine(manager.__aenter__))
        try:
            yield value
        except Exception as error:
            if not self.run(_coroutine(manager.__aexit__, type(error), error, error.__traceback__)):
                raise
        except BaseException:  # Ctrl-C is this thread's own
            self.run(_coroutine(manager.__aexit__, None, None, None))
            raise
        else:
            self.run(_coroutine(manager.__aexit__, None, None, None))

    def each(self, items: AsyncIterator[T]) -> Iterator[T]:
        while True:
            try:
                yield self.run(_coroutine(items.__anext__))
            except StopAsyncIteration:
                return

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._end.set)
            self._thread.join()


async def _coroutine(call: Callable[..., Any], *arguments: Any) -> Any:
    return await call(*arguments)


def _plain(
    method: Callable[Concatenate[ship.Ship, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Ship, P], T]:
    def call(self: Ship, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._loop.run(method(self._ship, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


def _block(
    method: Callable[Concatenate[ship.Ship, P], AbstractAsyncContextManager[T]],
) -> Callable[Concatenate[Ship, P], AbstractContextManager[T]]:
    def call(self: Ship, /, *args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[T]:
        return self._loop.entered(method(self._ship, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class Ship:
    """See `ground_station.ship.Ship`: the same arguments, results and errors."""

    def __init__(self, plainly: ship.Ship, loop: Loop) -> None:
        self._ship = plainly
        self._loop = loop

    @classmethod
    @contextmanager
    def connect(
        cls,
        vehicle: str | None = None,
        *,
        broker: str | None = None,
        signing_key_file: Path | None = None,
        outage_s: float = OUTAGE_S,
    ) -> Iterator[Self]:
        connected = ship.Ship.connect(
            vehicle, broker=broker, signing_key_file=signing_key_file, outage_s=outage_s
        )
        with Loop() as loop, loop.entered(connected) as found:
            yield cls(found, loop)

    @classmethod
    @contextmanager
    def lockstep(cls, simulated: Simulated) -> Iterator[Self]:
        with Loop() as loop, loop.entered(ship.Ship.lockstep(simulated)) as found:
            yield cls(found, loop)

    @classmethod
    @contextmanager
    def of(
        cls,
        session: Session,
        *,
        present: Callable[[], bool] = lambda: True,
        grant: Grant | None = None,
    ) -> Iterator[Self]:
        connected = ship.Ship.of(session, present=present, grant=grant)
        with Loop() as loop, loop.entered(connected) as found:
            yield cls(found, loop)

    command = _plain(ship.Ship.command)
    send = _plain(ship.Ship.send)
    push = _plain(ship.Ship.push)
    airframe = _plain(ship.Ship.airframe)
    ping = _plain(ship.Ship.ping)
    sensor = _plain(ship.Ship.sensor)
    limits = _plain(ship.Ship.limits)
    parameters = _plain(ship.Ship.parameters)
    set_parameter = _plain(ship.Ship.set_parameter)
    result = _plain(ship.Ship.result)
    state = _plain(ship.Ship.state)
    sleep = _plain(ship.Ship.sleep)
    arm = _plain(ship.Ship.arm)
    disarm = _plain(ship.Ship.disarm)
    mode = _plain(ship.Ship.mode)
    takeoff = _plain(ship.Ship.takeoff)
    goto = _plain(ship.Ship.goto)
    velocity = _plain(ship.Ship.velocity)
    follow = _plain(ship.Ship.follow)
    trajectory = _plain(ship.Ship.trajectory)
    stick = _plain(ship.Ship.stick)
    hold = _plain(ship.Ship.hold)
    land = _plain(ship.Ship.land)
    return_to_pad = _plain(ship.Ship.return_to_pad)
    mission = _plain(ship.Ship.mission)
    estop = _plain(ship.Ship.estop)
    control = _block(ship.Ship.control)
    motor = _plain(ship.Ship.motor)
    servo = _plain(ship.Ship.servo)
    wires = _plain(ship.Ship.wires)
    payload = _plain(ship.Ship.payload)
    photo = _plain(ship.Ship.photo)
    photo_stop = _plain(ship.Ship.photo_stop)
    geofence = _plain(ship.Ship.geofence)

    @staticmethod
    def estop_all(
        *, broker: str | None = None, signing_key_file: Path | None = None
    ) -> dict[str, Outcome]:
        with Loop() as loop:
            stop = ship.Ship.estop_all(broker=broker, signing_key_file=signing_key_file)
            return loop.run(stop)

    @property
    def vehicle(self) -> str:
        return self._ship.vehicle

    @property
    def now_s(self) -> float:
        return self._ship.now_s

    def telemetry(self, hz: float = 10.0) -> Iterator[Snapshot]:
        return self._loop.each(self._ship.telemetry(hz))

    @contextmanager
    def velocities(
        self, *, ttl_s: float = ship.SETPOINT_S
    ) -> Iterator[Callable[[float, float, float], None]]:
        with self._loop.entered(self._ship.velocities(ttl_s=ttl_s)) as send:
            yield lambda north_mps, east_mps, up_mps: self._loop.run(
                _coroutine(send, north_mps, east_mps, up_mps)
            )
