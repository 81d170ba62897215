"""The photographs of a ship on the page: previews first, and whole ones that somebody asked for.

Of each ship that somebody looks at one thread fetches, as `ground photo watch` does, a piece at a
time behind every command. A picture is sent as it came, to be shown as a preview or saved: this
machine never looks into one.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BlimpError, PhotoError
from blimp.photo import Photo
from blimp.web.answers import json_answer, refused_command
from ground_station.page.picture import NO_WATCH, Watches, without
from ground_station.photos import PhotoFetcher, PhotoFiles
from ground_station.report import Outcome

LOOKED_AT_S = 15.0  # without a request nothing more is fetched
LOOK_S = 3.0  # between two questions for new photographs
MOST_SHOWN = 60
MOST_WANTED = 32  # whole ones that wait to be fetched
TASK = "photo"

OpenFetcher = Callable[[str, Callable[[], bool]], AbstractContextManager[PhotoFetcher]]


class Album(Closing):
    """The photographs of one ship, fetched by a thread that ends when nobody looks."""

    def __init__(self, open_fetcher: OpenFetcher, vehicle: str, *, clock: Clock) -> None:
        self._open, self._vehicle, self._clock = open_fetcher, vehicle, clock
        self._changed = threading.Event()
        self._ended = False
        self._until_s = clock.now_s() + LOOKED_AT_S
        self._wanted: list[str] = []
        self._got: dict[str, int] = {}  # bytes of what is on its way
        self.waiting: dict[str, Photo] = {}
        self.trouble = ""
        self._thread = threading.Thread(target=self._run, name="photographs", daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def look(self) -> None:
        self._until_s = self._clock.now_s() + LOOKED_AT_S

    def want(self, name: str) -> str:
        """Have a whole photograph fetched; return why not, "" if it will be."""
        if name not in self.waiting:
            return "it does not wait on the ship"
        if name not in self._wanted:
            if len(self._wanted) >= MOST_WANTED:
                return f"{MOST_WANTED} photographs are asked for already: wait for them"
            self._wanted.append(name)
            self._changed.set()
        return ""

    def shown(self, files: PhotoFiles) -> list[dict[str, Any]]:
        """Return what the page shows, the newest first."""
        known = {one.name: one for one in files.photos()} | self.waiting
        return [
            {
                "name": name, "taken_s": one.taken_s, "bytes": one.bytes, "width": one.width,
                "height": one.height, "has_preview": files.path(name, preview=True) is not None,
                "is_here": files.path(name) is not None, "got_bytes": self._got.get(name),
                "is_wanted": name in self._wanted,
            }
            for name, one in sorted(known.items(), reverse=True)[:MOST_SHOWN]
        ]  # fmt: skip

    def _is_looked_at(self) -> bool:
        return not self._ended and self._clock.now_s() < self._until_s

    def _run(self) -> None:
        while self._is_looked_at():
            try:
                with self._open(self._vehicle, self._is_looked_at) as fetcher:
                    while self._is_looked_at():
                        self._fetch(fetcher)
                        self.trouble = ""
                        self._pause()
            except BlimpError as error:
                self.trouble = str(error)
                if isinstance(error, PhotoError) and self._wanted:  # the others are not to wait
                    self._wanted.append(self._wanted.pop(0))
                self._pause()

    def _pause(self) -> None:
        self._changed.wait(LOOK_S)
        self._changed.clear()

    def _fetch(self, fetcher: PhotoFetcher) -> None:
        """Fetch the previews that are missing, and one whole photograph."""
        self.waiting = {one.name: one for one in fetcher.waiting()}
        for one in list(self.waiting.values())[:MOST_SHOWN]:
            if fetcher.files.path(one.name, preview=True) is None:
                fetcher.fetch(one, preview=True)
        if not self._wanted:
            return
        name = self._wanted[0]
        wanted = self.waiting.get(name)
        try:
            if wanted is not None:
                fetcher.fetch(wanted, on_bytes=lambda count: self._got.update({name: count}))
                self.waiting.pop(name, None)
        finally:
            self._got.pop(name, None)
        self._wanted.remove(name)
        self._changed.set()

    def close(self) -> None:
        self._ended = True
        self._changed.set()


class Photographs(Closing):
    """Routes below `/api/photos`; `vehicle` in the query says whose.

    `/api/photos` lists them, `/api/photos/NAME` is one that is here whole, to be saved; `POST` has
    it fetched. With `?preview=1` it is the preview. 204 without a picture, with the reason in WHY.
    """

    def __init__(
        self, open_fetcher: OpenFetcher, files: Callable[[str], PhotoFiles], *,
        vehicle: str, clock: Clock,
    ) -> None:  # fmt: skip
        self._files = files
        self._albums = Watches(lambda ship: Album(open_fetcher, ship, clock=clock), vehicle=vehicle)

    def routes(self) -> Sequence[Route]:
        return (
            Route("/api/photos", self._list),
            Route("/api/photos/{name}", self._picture),
            Route("/api/photos/{name}", self._want, methods=["POST"]),
        )

    def _album(self, request: Request) -> tuple[str, Album | None]:
        vehicle, found = self._albums.of(request)
        if found is not None:
            found.look()
        return vehicle, found

    async def _list(self, request: Request) -> Response:
        vehicle, album = self._album(request)
        if album is None:
            return json_answer({"photos": [], "trouble": NO_WATCH})
        photos = await run_in_threadpool(album.shown, self._files(vehicle))
        return json_answer({"photos": photos, "trouble": album.trouble})

    async def _picture(self, request: Request) -> Response:
        is_preview = request.query_params.get("preview") == "1"
        vehicle, _ = self._album(request)
        name = request.path_params["name"]
        try:
            path = self._files(vehicle).path(name, preview=is_preview)
            data = None if path is None else await run_in_threadpool(path.read_bytes)
        except (PhotoError, OSError) as error:
            return without(str(error))
        if data is None:
            return without("it is not here yet")
        how = "inline" if is_preview else "attachment"
        headers = {"content-disposition": f'{how}; filename="{name}.jpg"'}
        return Response(data, media_type="image/jpeg", headers=headers)

    async def _want(self, request: Request) -> Response:
        if refused := refused_command(request, TASK):
            return refused
        _, album = self._album(request)
        name = request.path_params["name"]
        why = NO_WATCH if album is None else album.want(name)
        state = "REFUSED" if why else "PENDING"
        return json_answer(Outcome(id=None, task=TASK, state=state, reason=why))

    def close(self) -> None:
        self._albums.close()
