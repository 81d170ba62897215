"""The page's server: a few routes, one socket for each viewer, and limits for all of them.

It runs in a thread of its own, with an event loop that never waits for a ship, a broker or a
viewer: commands run in a pool, questions in another, emergency stops in threads of each ship. The
room's address is served by a process of its own (`audience.py`).
"""

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, get_args

import msgspec
import segno
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket, WebSocketDisconnect

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BlimpError, ConfigError, LinkError
from blimp.reading import ready
from blimp.web.access import PROTOCOL, Access, Tokens
from blimp.web.admission import OPERATORS, ROOMS, Rate
from blimp.web.answers import (
    arguments_of,
    failed_answer,
    json_answer,
    refused_command,
)
from blimp.web.listening import UNREACHABLE, listening_socket, room_urls, shown_address
from blimp.web.serving import Server
from ground_station import report
from ground_station.page import Votable
from ground_station.page.actions import NAMES, no_action
from ground_station.page.audience import Audience, Upstream
from ground_station.page.openapi import openapi
from ground_station.page.pilots import Pilots
from ground_station.page.room import MOST_VOTES, Room, Viewer
from ground_station.page.sign_in import SignIn
from ground_station.page.source import Source
from ground_station.stops import Stoppable, Stops

STATIC = Path(__file__).parent / "static"
SHARED = (("blimp.web", "static"), ("blimp.queue.extras.page", "static"))
MAX_VIEWERS = MOST_VOTES  # of each role: viewers must not keep an operator out
MAX_ROOMS = 16
COMMAND_THREADS = 8
QUESTION_THREADS = 4
MOST_PRESSES = 8  # of one socket at once
START_S = 20.0
NO_ROOM = "this page has no address for the room: start it again with --read-only"
# Of a QR code. ISO/IEC 18004 asks for dark on light, and four modules of light around it.
CODE: dict[str, Any] = {"border": 4, "dark": "#000", "light": "#fff", "scale": 8}
VOTE_S = 0.25  # between two votes of one viewer: who floods waits in its own connection
FIRST_S = 2.0  # for the first snapshot of a ship that is asked for
OPENING_S = 15.0  # of the page, on a slow machine beside a starting ship


class Ships(Protocol):
    """What the page does with ships; `ground_station/page/ships.py` does it with real ones."""

    @property
    def vehicle(self) -> str:
        """The ship that is shown first."""
        ...

    @property
    def stoppable(self) -> Stoppable:
        """What an emergency stop is sent to."""
        ...

    def vehicles(self) -> list[str]:
        """Return the names of all ships that are there now. May take a while."""
        ...

    def about(self, vehicle: str) -> dict[str, Any]:
        """Return what is known of a ship besides its state: shape, limits."""
        ...

    def source(self, vehicle: str) -> Source: ...

    def command(
        self, vehicle: str, name: str, arguments: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        """Run a command; return exit status and object as `ground --json NAME` has them."""
        ...

    def close(self) -> None: ...


class Part(Protocol):
    """What a panel adds to the server: routes of its own, below `/api/`."""

    def routes(self) -> Sequence[Route]: ...


class Page(Closing):
    """A running page. Its `url` has the operator's token in it.

    host: the address to listen on. view_host: that of the second address, on which nobody can
    command; None for no such address. parts: what panels add. tokens: None for new
    ones. pilots: hears of browsers that may command. listening: of the process that serves the
    second address.
    Raises ConfigError if an address cannot be listened on.
    """

    def __init__(
        self,
        *,
        ships: Ships,
        clock: Clock,
        host: str = "127.0.0.1",
        port: int = 0,
        view_host: str | None = None,
        parts: Sequence[Part] = (),
        title: str = "",
        listening: socket.socket | None = None,
        tokens: Tokens | None = None,
        pilots: Pilots | None = None,
    ) -> None:
        self.tokens = tokens or Tokens()
        self._pilots = pilots or Pilots(clock=clock)
        self._ships = ships
        self._clock = clock
        self._title = title
        self._rooms: dict[str, Room] = {}
        self._viewers: Counter[bool] = Counter()
        self._operators = 0
        self._first_asked_s: float | None = None
        self._sign_in = SignIn(token=self.tokens.operator, clock=clock)
        self._parts = parts if self.tokens.is_audience else (self._sign_in, *parts)

        self._stops = Stops(ships.stoppable)
        self._commands = ThreadPoolExecutor(COMMAND_THREADS, thread_name_prefix="command")
        self._questions = ThreadPoolExecutor(QUESTION_THREADS, thread_name_prefix="question")
        self._listening = listening or listening_socket(host, port)
        self._is_open = self.tokens.is_audience or host not in ("127.0.0.1", "::1", "localhost")
        self._host, self._view_host = host, view_host
        self._view: socket.socket | None = None
        self._audience: Audience | None = None
        if view_host is not None:
            self._view = listening_socket(view_host, 0)
            self._audience = Audience(self._view, upstream=self._upstream)
        self._loop = asyncio.new_event_loop()
        self._server = self._make_server()
        self._thread = threading.Thread(target=self._server.serve_to_end, name="page", daemon=True)

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    @property
    def url(self) -> str:
        """The address for the operator. Not for a program's arguments: everybody reads those."""
        return f"http://{shown_address(self._host)}:{self.port}/?token={self.tokens.operator}"

    def browser_url(self) -> str:
        """Return the address that a browser on this machine is started with: it is good once."""
        return f"http://{shown_address(self._host)}:{self.port}/#code={self._sign_in.new_code()}"

    @property
    def view_url(self) -> str | None:
        """The address for everybody else in the room; None if it was not asked for."""
        if self._view is None:
            return None
        port = self._view.getsockname()[1]
        return f"http://{shown_address(self._view_host or '')}:{port}/?token={self.tokens.viewer}"

    def start(self) -> None:
        """Return as soon as the page answers. Raises ConfigError if it does not.

        The first ship is listened to from now on, so that the first who looks sees it.
        """
        self._thread.start()
        deadline_s = self._clock.now_s() + START_S
        while not self._server.started:
            if not self._thread.is_alive() or self._clock.now_s() > deadline_s:
                raise ConfigError("the page's server did not start")
            self._clock.sleep_until(self._clock.now_s() + 0.005)
        self._loop.call_soon_threadsafe(self._room, self._ships.vehicle)
        if self._audience is not None:
            self._audience.start()

    @property
    def is_watched(self) -> bool:
        """Whether a browser that may command has the page open."""
        return self._operators > 0

    @property
    def is_opening(self) -> bool:
        """Whether the page was asked for, OPENING_S ago at most, and no operator has it yet."""
        began_s = self._first_asked_s
        is_new = began_s is not None and self._clock.now_s() - began_s < OPENING_S
        return is_new and not self.is_watched

    def tell(self, kind: str, content: Any, *, vehicle: str | None = None) -> None:
        """Show something to everybody who looks at a ship: a caption, the end card."""
        vehicle = vehicle or self._ships.vehicle

        def pass_on() -> None:
            self._room(vehicle).hear(kind, content)

        try:
            self._loop.call_soon_threadsafe(pass_on)
        except RuntimeError:
            return  # it has ended

    def close(self) -> None:
        """End the server and what it listens to. Idempotent."""
        if self._audience is not None:
            self._audience.close()
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        for one in (self._listening, self._view):
            if one is not None:
                one.close()
        for room in self._rooms.values():
            room.close()
            room.source.close()
        self._rooms.clear()
        self._stops.close()
        self._questions.shutdown(cancel_futures=True)
        self._commands.shutdown(cancel_futures=True)
        self._ships.close()

    # --- the server -------------------------------------------------------------------------

    def _upstream(self) -> Upstream:
        local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._host, self._host)
        return Upstream(
            host=local, port=self.port, relay=self.tokens.relay, viewer=self.tokens.viewer,
            vehicle=self._ships.vehicle, title=self._title,
        )  # fmt: skip

    def _make_server(self) -> Server:
        limits = ROOMS if self.tokens.is_audience else OPERATORS
        rate = Rate(
            per_s=limits.requests_hz,
            at_once=limits.requests_at_once,
            wait_s=limits.requests_wait_s,
            clock=self._clock,
        )
        app = Starlette(
            routes=[
                Route("/", self._index),
                Route("/api/state", self._state),
                Route("/api/past", self._past),
                Route("/api/ships", self._list),
                Route("/api/estop", self._estop, methods=["POST"]),
                Route("/api/command/{name}", self._command, methods=["POST"]),
                Route("/api/openapi.json", _openapi),
                Route("/api/room", self._codes),
                WebSocketRoute("/api/socket", self._socket),
                WebSocketRoute("/api/stop", self._stop_socket),
                *(route for part in self._parts for route in part.routes()),
                Route("/api/{path:path}", _nothing, methods=["GET", "POST"]),
                Mount("/static", StaticFiles(directory=STATIC, packages=[*SHARED])),
            ],
            middleware=[Middleware(Access, tokens=self.tokens, is_open=self._is_open, rate=rate)],
        )
        app.state.tell = self.tell
        return Server(
            app, listening=self._listening, has_token=self.tokens.are_in, rate=rate,
            limits=limits, clock=self._clock, loop=self._loop,
        )  # fmt: skip

    async def _enter(self, vehicle: str | None) -> Room:
        """Return the room of a ship that is shown or was heard. Raises LinkError."""
        vehicle = vehicle or self._ships.vehicle
        if vehicle not in (self._ships.vehicle, *self._rooms):
            names = await self._ask_for_ships()
            if vehicle not in names:
                raise LinkError(f"no ship {vehicle[:40]!r}; there are {', '.join(names)}")
        return self._room(vehicle)

    def _room(self, vehicle: str) -> Room:
        """Return the room of a ship; it is made for its first viewer. Raises LinkError."""
        room = self._rooms.get(vehicle)
        if room is None:
            if len(self._rooms) >= MAX_ROOMS:
                raise LinkError(f"{vehicle}: {MAX_ROOMS} ships are shown already")
            source = self._ships.source(vehicle)
            room = self._rooms[vehicle] = Room(source, clock=self._clock, loop=self._loop)
            room.start()
            self._stops.prepare(vehicle)
        return room

    # --- what is asked for ------------------------------------------------------------------

    async def _index(self, _: Request) -> Response:
        if self._first_asked_s is None:
            self._first_asked_s = self._clock.now_s()
        return FileResponse(STATIC / "index.html")

    async def _state(self, request: Request) -> Response:
        try:
            room = await self._enter(request.query_params.get("vehicle"))
        except BlimpError as error:
            return failed_answer("status", str(error), 503)
        state = await room.first_state(within_s=FIRST_S)
        if state is None:
            return failed_answer("status", f"no snapshot of {room.vehicle!r} yet", 503)
        return json_answer(state)

    async def _past(self, request: Request) -> Response:
        """Answer with what the plots show of the last two minutes, as far as they are known."""
        try:
            room = await self._enter(request.query_params.get("vehicle"))
        except BlimpError as error:
            return failed_answer("past", str(error), 503)
        return json_answer({"states": list(room.past)})

    async def _list(self, _: Request) -> Response:
        trouble = ""
        try:
            names = await self._ask_for_ships()
        except BlimpError as error:  # asked all the time, also while there is no broker
            names, trouble = sorted({self._ships.vehicle, *self._rooms}), str(error)
        return json_answer({"vehicles": names, "vehicle": self._ships.vehicle, "trouble": trouble})

    async def _estop(self, request: Request) -> Response:
        if refused := refused_command(request, "estop"):
            return refused
        arguments = await arguments_of(request)
        if isinstance(arguments, Response):
            # An emergency stop is not refused for what stands beside it.
            arguments = {}
        return json_answer(await self._stop(arguments.get("vehicle")))

    async def _stop(self, wanted: Any) -> dict[str, Any]:
        """Stop the ship of a name; without one, or for "all", every ship, as `ground estop`."""
        self._stops.prepare(self._ships.vehicle)
        if isinstance(wanted, str) and wanted not in ("", "all"):
            outcome = await asyncio.wrap_future(self._stops.press(wanted), loop=self._loop)
            found: dict[str, Any] = msgspec.to_builtins(outcome)
            return found
        return await asyncio.wrap_future(self._stops.press_all(), loop=self._loop)

    async def _ask_for_ships(self) -> list[str]:
        """Return the ships that are there now, each ready to be stopped. Raises BlimpError."""
        names = await self._loop.run_in_executor(self._questions, self._ships.vehicles)
        for name in names:
            self._stops.prepare(name)
        return names

    async def _command(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name == "estop":
            return await self._estop(request)
        if refused := refused_command(request, name):
            return refused
        if name not in NAMES:
            return failed_answer(name, no_action(name), 404)
        arguments = await arguments_of(request)
        if isinstance(arguments, Response):
            return arguments
        vehicle = request.query_params.get("vehicle") or self._ships.vehicle
        status, document = await self._loop.run_in_executor(
            self._commands, self._ships.command, vehicle, name, arguments
        )
        return json_answer(document, status=400 if status == report.USAGE else 200)

    async def _codes(self, request: Request) -> Response:
        """Answer with the room's address as QR codes, one for each network of this machine."""
        if refused := refused_command(request, "room"):
            return refused
        urls = [] if self.view_url is None else room_urls(self.view_url)
        reason = NO_ROOM if self.view_url is None else "" if urls else UNREACHABLE
        codes = [
            {"url": one, "code": segno.make(one, error="l").svg_data_uri(**CODE)} for one in urls
        ]
        return json_answer({"codes": codes, "reason": reason})

    # --- viewers ----------------------------------------------------------------------------

    async def _socket(self, socket: WebSocket) -> None:
        await _accept(socket)
        is_known = socket.state.is_known
        if self._viewers[is_known] >= MAX_VIEWERS:
            await socket.close(1013, f"{MAX_VIEWERS} viewers look already")
            return
        viewer = Viewer(role=socket.state.role)
        self._viewers[is_known] += 1
        self._operators += viewer.role == "operator"
        try:
            room = await self._enter(socket.query_params.get("vehicle"))
            await self._serve(socket, viewer, room)
        except BlimpError as error:
            await socket.close(1011, str(error)[:120])
        finally:
            self._viewers[is_known] -= 1
            self._operators -= viewer.role == "operator"

    async def _stop_socket(self, socket: WebSocket) -> None:
        """Take an operator's stops on a connection that is there before the press.

        Each message has an `id`, which its answer repeats. One without `vehicle` asks whether the
        connection is alive.
        """
        await _accept(socket)
        if socket.state.role != "operator":
            await socket.close(1008, "this address is read-only: it cannot command")
            return
        presses: set[asyncio.Task[None]] = set()

        async def stop(press: _Press) -> None:
            outcome = await self._stop(press.vehicle)
            with contextlib.suppress(WebSocketDisconnect, RuntimeError):
                await socket.send_text(_plain({"id": press.id, "outcome": outcome}))

        while True:
            try:
                press = msgspec.json.decode(await socket.receive_text(), type=_Press)
                self._pilots.heard()
                if press.vehicle is None:
                    await socket.send_text(_plain({"id": press.id}))
                elif len(presses) < MOST_PRESSES:
                    task = asyncio.create_task(stop(press))
                    presses.add(task)
                    task.add_done_callback(presses.discard)
            except WebSocketDisconnect:
                return  # what was pressed is sent on
            except (msgspec.MsgspecError, KeyError, RecursionError, UnicodeDecodeError) as error:
                await socket.close(1003, f"not understood: {error}"[:120])
                return

    async def _serve(self, socket: WebSocket, viewer: Viewer, room: Room) -> None:
        viewer.put(_text("hello", await self._hello(viewer, room)))
        room.enter(viewer)
        receiving = asyncio.create_task(_receive(socket, viewer, room))
        sending = asyncio.create_task(_send(socket, viewer))
        try:
            await asyncio.wait((receiving, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            room.leave(viewer)
            for task in (receiving, sending):
                task.cancel()
            await asyncio.gather(receiving, sending, return_exceptions=True)
            if viewer.is_dropped:
                socket.state.abort()

    async def _hello(self, viewer: Viewer, room: Room) -> dict[str, Any]:
        about = await self._loop.run_in_executor(self._questions, self._ships.about, room.vehicle)
        is_live = room.source.is_live
        return {
            "vehicle": room.vehicle,
            "role": viewer.role,
            "may_command": viewer.role == "operator" and is_live,
            "votable": get_args(Votable) if self.tokens.is_audience and is_live else (),
            "is_live": is_live,
            "title": self._title,
            "about": about,
        }


async def _openapi(_: Request) -> Response:
    return json_answer(openapi())


async def _nothing(request: Request) -> Response:
    return failed_answer("", f"nothing is at {request.url.path[:60]!r}", 404)


async def _send(socket: WebSocket, viewer: Viewer) -> None:
    while not viewer.is_dropped:
        for text in await viewer.take():
            await socket.send_text(text)


async def _receive(socket: WebSocket, viewer: Viewer, room: Room) -> None:
    """Take an operator's wishes for the source, and viewers' votes.

    What is neither ends the connection, with a reason.
    """
    while True:
        try:
            message = msgspec.json.decode(await socket.receive_text(), type=_Wish)
            if viewer.role == "operator":
                room.source.ask(message.kind, message.content)
            elif viewer.role == "relay" and message.kind == "votes":
                room.tally(message.content)
            elif viewer.role == "viewer" and message.kind == "vote":
                room.vote(viewer, message.content)
                await asyncio.sleep(VOTE_S)
        except WebSocketDisconnect:
            return
        except (msgspec.MsgspecError, KeyError, RecursionError, UnicodeDecodeError) as error:
            await socket.close(1003, f"not understood: {error}"[:120])
            return


@ready
class _Wish(msgspec.Struct, frozen=True):
    kind: str
    content: dict[str, Any] = {}


@ready
class _Press(msgspec.Struct, frozen=True):
    id: int
    vehicle: str | None = None


async def _accept(socket: WebSocket) -> None:
    asked = socket.scope.get("subprotocols", ())
    await socket.accept(subprotocol=PROTOCOL if PROTOCOL in asked else None)


def _text(kind: str, content: Any) -> str:
    return _plain({"kind": kind, "content": content})


def _plain(document: Any) -> str:
    return msgspec.json.encode(document).decode()
