"""The setup panel's side of the server: parameters, airframe check and doctor.

Parameters are read here, and set by the command `param`, as every other command goes.
"""

import threading
from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.airframe import Airframe
from blimp.errors import BlimpError
from blimp.link.paths import RuntimePaths
from blimp.parameters import parameters
from blimp.web.answers import failed_answer, json_answer, refused_command
from ground_station.page.program import here, run_blimp
from ground_station.report import Outcome
from ground_station.session import Session

WITHIN_S = 60.0
ACTIONS = ("check", "doctor")


class Setup:
    """Routes below `/api/setup`. airframe: returns what a ship flies, or raises BlimpError."""

    def __init__(self, session: Session, *, airframe: Callable[[str], Airframe]) -> None:
        self._session = session
        self._airframe = airframe
        self._busy = threading.Lock()

    def routes(self) -> Sequence[Route]:
        return (
            Route("/api/setup", self._show),
            Route("/api/setup/{action}", self._act, methods=["POST"]),
        )

    async def _show(self, request: Request) -> Response:
        vehicle = request.query_params.get("vehicle") or self._session.ship.vehicle
        try:
            airframe = await run_in_threadpool(self._airframe, vehicle)
        except BlimpError as error:
            return json_answer({"parameters": [], "motors": [], "reason": str(error)})
        found = {"parameters": list(parameters(airframe)), "motors": airframe.thruster_names}
        return json_answer(found | {"reason": ""})

    async def _act(self, request: Request) -> Response:
        action = request.path_params["action"]
        task = f"setup.{action}"[:80]
        if refused := refused_command(request, task):
            return refused
        if action not in ACTIONS:
            return failed_answer(task, f"no action {action[:40]!r}: {', '.join(ACTIONS)}", 404)
        vehicle = request.query_params.get("vehicle") or self._session.ship.vehicle
        return json_answer(await run_in_threadpool(self.act, action, vehicle))

    def act(self, action: str, vehicle: str) -> Outcome:
        """Judge the airframe that flies, or the computer. It moves nothing."""
        task = f"setup.{action}"
        if not self._busy.acquire(blocking=False):
            reason = "another check goes on"
            return Outcome(id=None, task=task, state="REFUSED", reason=reason)
        try:
            place = here(self._session, vehicle)
            if place is None:
                raise BlimpError(NOT_HERE.format(vehicle[:40]))
            if action == "check":
                file = RuntimePaths(place.directory).airframe
                words = ["airframe", "check", "--json", str(file)]
            else:
                words = ["doctor", "--json", "--runtime-dir", str(place.directory)]
                words += ["--sim"] if place.is_simulated else []
            found = run_blimp(*words, within_s=WITHIN_S)
        except BlimpError as error:
            return Outcome(id=None, task=task, state="REFUSED", reason=str(error))
        finally:
            self._busy.release()
        return Outcome(id=None, task=task, state="SUCCESS", result=found)


NOT_HERE = "{!r} does not run on this machine: open the page there, or run `blimp doctor` on it"
