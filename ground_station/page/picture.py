"""The camera's picture for browsers: one request, one picture, the newest.

A browser asks for the next picture when it has the last one, so a slow one gets fewer. Of each ship
one thread reads, while somebody looks.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.config import VEHICLE_PATTERN
from blimp.errors import BlimpError
from blimp.link.picture import Picture

LOOKED_AT_S = 5.0  # without a request the ship is asked for no more pictures
ANSWER_S = 3.0  # of a request, with or without a picture
MAX_ABOUT = 8192  # of a header, where pictures have what is drawn over them
MOST_SHIPS = 4
NO_WATCH = f"no such ship, or {MOST_SHIPS} others are shown already"
ABOUT, WHY = "x-blimp-picture", "x-blimp-why"


class PictureFeed(Protocol):
    """Where the pictures of a ship come from; as PictureReader is one. May take seconds for one."""

    wait_s: float
    words: str

    def next(self, after: int) -> Picture | None: ...

    def close(self) -> None: ...


class PictureWatch(Closing):
    """The pictures of one ship, read by a thread that ends by itself when nobody looks."""

    def __init__(self, open_reader: Callable[[], PictureFeed], *, clock: Clock) -> None:
        self._open, self._clock = open_reader, clock
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._ended = threading.Event()
        self._until_s = clock.now_s() + LOOKED_AT_S
        self.newest: Picture | None = None
        self.words = ""
        self._thread = threading.Thread(target=self._run, name="picture", daemon=True)
        self._thread.start()

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    async def picture(self, after: int) -> Picture | None:
        """Return a picture other than that of `after` as soon as there is one, None in ANSWER_S."""
        self._until_s = self._clock.now_s() + LOOKED_AT_S
        deadline_s = self._clock.now_s() + ANSWER_S
        while (found := self.newest) is None or found.about["sequence"] == after:
            left_s = deadline_s - self._clock.now_s()
            if left_s <= 0.0 or self.words:
                return None
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except TimeoutError:
                return None
        return found

    def _run(self) -> None:
        after = -1
        try:
            with closing(self._open()) as reader:
                while not self._ended.is_set() and self._clock.now_s() < self._until_s:
                    found = reader.next(after)
                    after = after if found is None else found.about["sequence"]
                    self._tell(found, reader.words)
                    self._ended.wait(reader.wait_s)
        except BlimpError as error:
            self._tell(None, str(error))

    def _tell(self, found: Picture | None, words: str) -> None:
        def tell() -> None:
            self.newest, self.words = found or self.newest, words
            self._changed.set()
            self._changed = asyncio.Event()

        try:
            self._loop.call_soon_threadsafe(tell)
        except RuntimeError:
            self._ended.set()  # the page has ended

    def close(self) -> None:
        self._ended.set()


class ShipWatch(Protocol):
    """What runs for a ship that somebody looks at, and ends by itself when nobody does."""

    @property
    def runs(self) -> bool: ...

    def close(self) -> None: ...


W = TypeVar("W", bound=ShipWatch)


class Watches(Closing, Generic[W]):
    """The watches of the ships that somebody looks at; `vehicle` in the query says which."""

    def __init__(self, begin: Callable[[str], W], *, vehicle: str) -> None:
        self._begin, self._vehicle = begin, vehicle
        self._running: dict[str, W] = {}

    def of(self, request: Request) -> tuple[str, W | None]:
        """Return a ship's name and its watch; None with a name that no ship has, or one too many.

        What is returned in place of a bad name is the first ship's: it may be part of a path.
        """
        vehicle = request.query_params.get("vehicle") or self._vehicle
        if not re.fullmatch(VEHICLE_PATTERN, vehicle):
            return self._vehicle, None
        self._running = {name: one for name, one in self._running.items() if one.runs}
        if vehicle not in self._running and len(self._running) < MOST_SHIPS:
            self._running[vehicle] = self._begin(vehicle)
        return vehicle, self._running.get(vehicle)

    def close(self) -> None:
        for one in self._running.values():
            one.close()


class Pictures(Closing):
    """Route `/api/picture?vehicle=V&after=N`, for all who may look.

    200 with a JPEG, and what is known of it as JSON in the header ABOUT; 204 without a picture,
    with the reason in WHY: a browser would write each 404 to its console.
    """

    def __init__(
        self, open_reader: Callable[[str], PictureFeed], *, vehicle: str, clock: Clock
    ) -> None:
        self._watches = Watches(
            lambda ship: PictureWatch(lambda: open_reader(ship), clock=clock), vehicle=vehicle
        )

    def routes(self) -> Sequence[Route]:
        return (Route("/api/picture", self._answer),)

    async def _answer(self, request: Request) -> Response:
        after = request.query_params.get("after", "")
        _, watch = self._watches.of(request)
        if watch is None:
            return without(NO_WATCH)
        found = await watch.picture(int(after[:18]) if after.isdecimal() else -1)
        if found is None:
            return without(watch.words)
        words = msgspec.json.encode(about_of(found))
        if len(words) > MAX_ABOUT:
            words = msgspec.json.encode(about_of(found) | {"seen": {}})
        headers = {ABOUT: _ascii(words), "cache-control": "no-store"}
        return Response(found.jpeg, media_type="image/jpeg", headers=headers)

    def close(self) -> None:
        self._watches.close()


def about_of(picture: Picture) -> dict[str, Any]:
    """Return what a browser gets with a picture."""
    known = {name: picture.about.get(name) for name in ("sequence", "size", "seen", "view")}
    return known | {"age_s": round(picture.age_s, 3), "took_s": round(picture.took_s, 3)}


def without(why: str) -> Response:
    """Return the answer where there is no picture, with the reason."""
    return Response(status_code=204, headers={WHY: _ascii(why.encode())[:200]} if why else {})


def _ascii(text: bytes) -> str:
    """Return UTF-8 JSON, or words, as a header may have it: other letters as JSON escapes them."""
    letters = text.decode("utf-8", "replace")
    return "".join(c if " " <= c <= "~" else f"\\u{min(ord(c), 0xFFFF):04x}" for c in letters)
