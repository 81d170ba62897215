"""The setup panel's side of the server: parameters, airframe check and doctor.

Parameters are the numbers of the ship's airframe, with units and limits. They are read here, and
set in the airframe's file: a flight process reads that once, when it starts.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.airframe import Airframe
from blimp.errors import BlimpError
from blimp.link.paths import RuntimePaths
from ground_station.page.answers import failed_answer, json_answer, refused_command
from ground_station.page.program import here, run_blimp
from ground_station.report import Outcome
from ground_station.session import Session

WITHIN_S = 60.0
ACTIONS = ("check", "doctor")
SECTIONS = ("limits", "gains", "battery", "ground", "home", "estimator")  # one table each
_UNITS = {  # of a field's last word; what has none here is a bare number
    "m": "m", "mps": "m/s", "mps2": "m/s²", "rad": "rad", "radps": "rad/s", "kg": "kg", "v": "V",
    "a": "A", "ah": "Ah", "ohm": "Ω", "deg": "°", "s": "s", "n": "N", "nm": "N m", "t": "T",
}  # fmt: skip

_TINY, _HUGE = 1e-6, 1e6  # beyond them a limit is the schema's way to say above 0, and finite


class Setup:
    """Routes below `/api/setup`. airframe: returns that of a ship, if it is known here."""

    def __init__(self, session: Session, *, airframe: Callable[[str], Airframe | None]) -> None:
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
        airframe = await run_in_threadpool(self._airframe, vehicle)
        if airframe is None:
            return json_answer({"parameters": [], "reason": NOT_HERE.format(vehicle[:40])})
        return json_answer({"parameters": list(parameters(airframe)), "reason": ""})

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


def parameters(airframe: Airframe) -> Iterator[dict[str, Any]]:
    """Yield every number of the ship: section, name, value, unit, and its limits in words."""
    for section in SECTIONS:
        part = getattr(airframe, section)
        info = msgspec.inspect.type_info(type(part))
        assert isinstance(info, msgspec.inspect.StructType)
        for field in info.fields:
            value = getattr(part, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            yield {
                "section": section,
                "name": field.name,
                "value": value,
                "unit": _UNITS.get(field.name.rpartition("_")[2], "") if "_" in field.name else "",
                "limits": _limits(field.type),
            }


def _limits(kind: Any) -> str:
    """Return what the schema allows: "above 0", "0 to 90"."""
    if isinstance(kind, msgspec.inspect.UnionType):
        numbers = (msgspec.inspect.FloatType, msgspec.inspect.IntType)
        kind = next((one for one in kind.types if isinstance(one, numbers)), kind)
    low, above = getattr(kind, "ge", None), getattr(kind, "gt", None)
    high, below = getattr(kind, "le", None), getattr(kind, "lt", None)
    if low is not None and 0.0 < low < _TINY:
        low, above = None, 0.0
    if high is None and below is not None and below < _HUGE:
        high = below
    if high is not None and high >= _HUGE:
        high = None
    if low is not None and low <= -_HUGE:
        low = None
    least = f"above {above:g}" if above is not None else f"{low:g}" if low is not None else ""
    if high is not None:
        return f"{least} to {high:g}" if least else f"at most {high:g}"
    return "any number" if not least else least if above is not None else f"at least {least}"
