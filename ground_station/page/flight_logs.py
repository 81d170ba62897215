"""The log of the flight that is shown: to download, and to see again on a page of its own."""

import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.closing import Closing
from blimp.config import log_directory
from blimp.errors import BlimpError, LogError
from blimp.recording.directory import log_sizes, newest_log
from blimp.recording.recording import Recording, open_recording
from blimp.recording.recover import recover
from blimp.web.answers import json_answer, refused_command
from ground_station.page.program import here
from ground_station.page.recorded import RecordedShip
from ground_station.page.server import Page
from ground_station.report import Outcome
from ground_station.session import Session

MAX_BYTES = 256 * 2**20
TASK = "replay"


class FlightLogs(Closing):
    """Routes `/api/log` and `/api/replay`; at most one recording is open.

    A log that has not grown since the page is served is one of an earlier flight.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._earlier = log_sizes(log_directory())
        self._lock = threading.Lock()
        self._open: tuple[Page, RecordedShip, Recording] | None = None

    def routes(self) -> Sequence[Route]:
        return (
            Route("/api/log", self._download),
            Route("/api/replay", self._replay, methods=["POST"]),
        )

    async def _download(self, request: Request) -> Response:
        if refused := refused_command(request, "log"):
            return refused
        try:
            name, data = await run_in_threadpool(self.read, self._vehicle(request))
        except (BlimpError, OSError) as error:
            # No error of the page: a browser would write one to its console for a 404.
            return json_answer(Outcome(id=None, task="log", state="REFUSED", reason=str(error)))
        disposition = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(data, media_type="application/octet-stream", headers=disposition)

    async def _replay(self, request: Request) -> Response:
        if refused := refused_command(request, TASK):
            return refused
        try:
            url = await run_in_threadpool(self.replay, self._vehicle(request))
        except (BlimpError, OSError) as error:
            return json_answer(Outcome(id=None, task=TASK, state="REFUSED", reason=str(error)))
        return json_answer(Outcome(id=None, task=TASK, state="SUCCESS", result={"url": url}))

    def _vehicle(self, request: Request) -> str:
        return request.query_params.get("vehicle") or self._session.ship.vehicle

    def newest(self, vehicle: str) -> Path:
        """Return the newest log of a ship that runs on this machine. Raises LogError."""
        if here(self._session, vehicle) is None:
            raise LogError(f"{vehicle[:40]!r} does not run on this machine: its log is not here")
        found = newest_log(log_directory(), vehicle)
        if found is None:
            raise LogError(f"no log of {vehicle} in {log_directory()}")
        if self._earlier.get(found) == found.stat().st_size:
            raise LogError(
                f"this flight is not recorded: the newest log of {vehicle}, {found.name}, has not "
                "grown since this page is served"
            )
        return found

    def read(self, vehicle: str) -> tuple[str, bytes]:
        """Return a name and the newest flight in one log, as far as it is written.

        Raises LogError.
        """
        path = self.newest(vehicle)
        with open_recording(path) as log, tempfile.TemporaryDirectory() as scratch:
            name = log.parts[0].path.name
            if sum(part.size for part in log.parts) > MAX_BYTES:
                raise LogError(f"{path} is over {MAX_BYTES // 2**20} MiB: copy the file")
            if len(log.parts) > 1:
                path = Path(scratch) / name
                recover(log.path, path)
            return name, path.read_bytes()

    def replay(self, vehicle: str) -> str:
        """Serve the newest flight on a page of its own, for this machine; return its address."""
        with self._lock:
            path = self.newest(vehicle)
            self._end()
            log = open_recording(path)
            try:
                ship = RecordedShip(log, speed=1.0, clock=self._session.clock)
                page = Page(ships=ship, clock=self._session.clock, title="recording")
                page.start()
            except BaseException:
                log.close()
                raise
            self._open = page, ship, log
            return page.url

    def close(self) -> None:
        with self._lock:
            self._end()

    def _end(self) -> None:
        if self._open is not None:
            for one in self._open:
                one.close()
            self._open = None
