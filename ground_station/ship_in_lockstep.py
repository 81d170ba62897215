"""The way to a ship that flies in lockstep, in this process: no queue, no link, no other pilot.

The ship's time passes while something waits for it. Between two steps all tasks that were waited
for run on, until they wait again: what a program computes takes no time.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from blimp.errors import Refused
from blimp.tasks.reply import Reply, ReplyState
from blimp.types import Command, Outcome, OutcomeState, Snapshot
from ground_station.following import CommandListener

if TYPE_CHECKING:
    from blimp.airframe import Airframe

STEP_S = 0.02  # the end of a command is seen that late at most
PASSES = 20  # of the event loop between two steps: chosen, a task that wakes up another needs three
STATES: dict[OutcomeState, ReplyState] = {
    OutcomeState.DONE: "SUCCESS",
    OutcomeState.REFUSED: "REFUSED",
    OutcomeState.IN_PROGRESS: "TIMEOUT",
}


class Simulated(Protocol):
    """What is used of `blimp.ship.Lockstep`."""

    @property
    def airframe(self) -> Airframe: ...

    @property
    def now_s(self) -> float: ...

    def step(self, seconds: float) -> None: ...

    def give(self, command: Command) -> None: ...

    def outcome(self, id: str) -> Outcome: ...

    def snapshot(self) -> Snapshot: ...


class LockstepTime:
    """The time of one or several ships, which all fly on while anything waits for it."""

    def __init__(self) -> None:
        self._ships: list[Simulated] = []
        self._began_s = 0.0
        self._waits: dict[asyncio.Future[None], Callable[[], bool]] = {}
        self._flying: asyncio.Task[None] | None = None

    def add(self, ship: Simulated) -> None:
        if not self._ships:
            self._began_s = ship.now_s
        self._ships.append(ship)

    def now_s(self) -> float:
        """Seconds since the first ship was added."""
        return self._ships[0].now_s - self._began_s

    async def until(self, is_over: Callable[[], bool]) -> None:
        """Fly on until `is_over`, which is asked after each step. Raises what a step raises."""
        end = asyncio.get_running_loop().create_future()
        self._waits[end] = is_over
        if self._flying is None or self._flying.done():
            self._flying = asyncio.create_task(self._fly())
        try:
            await end
        finally:
            self._waits.pop(end, None)

    async def _fly(self) -> None:
        try:
            while self._waits:
                for ship in self._ships:
                    ship.step(STEP_S)
                for end, is_over in list(self._waits.items()):
                    if not end.done() and is_over():
                        end.set_result(None)
                for _ in range(PASSES):
                    await asyncio.sleep(0)
        except Exception as error:
            for end in self._waits:
                if not end.done():
                    end.set_exception(error)


class LockstepTransport:
    """See `ground_station.ship.Transport`. beside: another one, whose time it shares."""

    def __init__(self, ship: Simulated, *, beside: LockstepTransport | None = None) -> None:
        self._ship = ship
        self._time: LockstepTime = LockstepTime() if beside is None else beside._time
        self._time.add(ship)

    @property
    def vehicle(self) -> str:
        return self._ship.airframe.name

    async def command(
        self,
        name: str,
        arguments: dict[str, Any],
        *,
        timeout_s: float,
        coalesce: str | None = None,  # noqa: ARG002  nothing waits in a queue
        listener: CommandListener | None = None,  # noqa: ARG002
    ) -> Reply:
        if name == "param":
            raise Refused("param: a ship in lockstep flies the airframe that it was made with")
        command = self._give(name, arguments)
        until_s = self.now_s() + timeout_s
        await self._time.until(lambda: self._has_ended(command.id) or self.now_s() >= until_s)
        return self._reply(command)

    async def push(
        self,
        key: str,  # noqa: ARG002
        arguments: dict[str, Any],
        *,
        ttl_s: float,  # noqa: ARG002
        task: str = "velocity",
    ) -> Reply | None:
        command = self._give(task, arguments)
        await self._time.until(lambda: self._outcome(command.id) is not None)
        reply = self._reply(command)
        return reply if reply.state == "REFUSED" else None

    async def send(self, name: str, arguments: dict[str, Any], *, timeout_s: float) -> str:  # noqa: ARG002
        return self._give(name, arguments).id

    def ready_to_stop(self) -> None:
        """Nothing: it is in this process."""

    async def estop(self) -> Reply:
        return await self.command("estop", {}, timeout_s=1.0)

    async def result(self, id: str) -> Reply:
        return self._reply(Command(id=id, name=""))

    @asynccontextmanager
    async def control(
        self,
        *,
        pilot: str | None,  # noqa: ARG002
        ttl_s: float,  # noqa: ARG002
        wait_s: float,  # noqa: ARG002
    ) -> AsyncIterator[None]:
        yield

    async def airframe(self, *, timeout_s: float = 0.0) -> Airframe:  # noqa: ARG002
        return self._ship.airframe

    async def snapshot(self, after: Snapshot | None) -> Snapshot | None:
        if after is not None and after.t_s == self._ship.snapshot().t_s:
            await self._time.until(lambda: True)
        return self._ship.snapshot()

    def now_s(self) -> float:
        return self._time.now_s()

    async def sleep(self, seconds: float) -> None:
        until_s = self.now_s() + seconds - 1e-9  # rounding costs no step
        if self.now_s() < until_s:
            await self._time.until(lambda: self.now_s() >= until_s)

    def _give(self, name: str, arguments: dict[str, Any]) -> Command:
        command = Command(id=str(uuid.uuid4()), name=name, arguments=arguments)
        self._ship.give(command)
        return command

    def _outcome(self, id: str) -> Outcome | None:
        try:
            return self._ship.outcome(id)
        except KeyError:
            return None

    def _has_ended(self, id: str) -> bool:
        outcome = self._outcome(id)
        return outcome is not None and outcome.state is not OutcomeState.IN_PROGRESS

    def _reply(self, command: Command) -> Reply:
        outcome = self._outcome(command.id) or Outcome(
            id=command.id, state=OutcomeState.IN_PROGRESS, reason="no such command was given"
        )
        more = {"fraction": outcome.fraction, "accepted_s": outcome.accepted_s}
        return Reply(
            id=command.id,
            task=f"blimp.{command.name}",
            state=STATES[outcome.state],
            result=msgspec.to_builtins(outcome.result) | more,
            reason=outcome.reason,
        )
