"""Every ship on the broker: how it is, who has control of it; taking control and giving it back."""

import io
import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.errors import BlimpError, LinkError
from blimp.tasks.authority import CONTROL_TTL_S, pilot_of
from blimp.web.answers import arguments_of, failed_answer, json_answer, refused_command
from ground_station import control_command
from ground_station.discover import ShipAddress
from ground_station.report import Outcome, Report
from ground_station.session import Session

FRESH_S = 1.0
MAX_SHIPS = 64
TASK = "control"


class Fleet:
    """Routes for all ships of the session's broker. vehicles: returns their names."""

    def __init__(self, session: Session, *, vehicles: Callable[[], list[str]]) -> None:
        self._session = session
        self._vehicles = vehicles
        self._lock = threading.Lock()
        self._found: list[dict[str, Any]] = []
        self._found_s = -FRESH_S

    def routes(self) -> Sequence[Route]:
        return (
            Route("/api/fleet", self._show),
            Route("/api/control/{verb}", self._change, methods=["POST"]),
        )

    async def _show(self, _: Request) -> Response:
        try:
            return json_answer({"ships": await run_in_threadpool(self.look)})
        except BlimpError as error:
            return failed_answer("fleet", str(error), 503)

    async def _change(self, request: Request) -> Response:
        verb = request.path_params["verb"]
        if refused := refused_command(request, TASK):
            return refused
        if verb not in ("take", "release"):
            return failed_answer(TASK, f"no action {verb[:40]!r}: take, release", 404)
        arguments = await arguments_of(request)
        if isinstance(arguments, Response):
            return arguments
        vehicle, force = arguments.get("vehicle"), arguments.get("force", False)
        if not isinstance(vehicle, str) or not isinstance(force, bool):
            return failed_answer(TASK, "vehicle must be a name, and force true or false", 400)
        return json_answer(await run_in_threadpool(self.change, verb, vehicle, force=force))

    def look(self) -> list[dict[str, Any]]:
        """Return what each ship says, and who has control of it. Raises BlimpError."""
        with self._lock:
            now_s = self._session.clock.now_s()
            if now_s - self._found_s >= FRESH_S:
                self._found = [self._ship(name) for name in self._vehicles()[:MAX_SHIPS]]
                self._found_s = self._session.clock.now_s()
            return self._found

    def _ship(self, vehicle: str) -> dict[str, Any]:
        ship = ShipAddress(vehicle=vehicle, broker=self._session.ship.broker)
        with self._session.reader(ship) as reader:
            heard = reader.latest()
        with self._session.of(ship).control() as control:
            holding = control.who()
            is_mine = control.is_mine(holding)
        found: dict[str, Any] = {
            "vehicle": vehicle,
            "pilot": None if holding is None else pilot_of(holding.holder),
            "yours": is_mine,
            "left_s": None if holding is None else holding.left_s,
            "age_s": None,
        }
        if heard is None:
            return found
        snapshot, age_s = heard
        return found | {
            "age_s": age_s,
            "mode": snapshot.mode,
            "armed": snapshot.armed,
            "killed": snapshot.killed,
            "failsafe": snapshot.failsafe,
            "simulated": snapshot.simulated,
            "altitude_m": snapshot.altitude_m,
            "battery_v": snapshot.battery_v,
        }

    def change(self, verb: str, vehicle: str, *, force: bool) -> Any:
        """Take control, or give it back; return what `ground --json control` prints.

        force: take it from another pilot.
        """
        with self._lock:
            self._found_s = -FRESH_S
        out = io.StringIO()
        printed = Report(as_json=True, out=out, err=io.StringIO())
        try:
            if vehicle not in self._vehicles():
                raise LinkError(f"no ship {vehicle[:40]!r} is heard on this broker")
            session = self._session.like(printed, vehicle=vehicle, yes=force)
            if verb == "take":
                control_command.take(
                    session, pilot=None, ttl_s=CONTROL_TTL_S, wait_s=0.0, force=force
                )
            else:
                control_command.release(session)
        except BlimpError as error:
            return Outcome(id=None, task=TASK, state="REFUSED", reason=str(error))
        return msgspec.json.decode(out.getvalue())
