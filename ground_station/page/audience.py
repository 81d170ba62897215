"""The room's address, served by a process of its own: whatever strangers and slow phones do to it,
it costs the operator's page one reader a ship and a few questions a second.

The process is a page whose ships are those of the operator's page, and it gives way to that one
(nice). It has the viewer's token and none that commands. It ends with its standard input, so it
cannot outlive the page, kill -9 included.
"""

import asyncio
import contextlib
import http.client
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import LinkError
from blimp.link.picture import Picture
from blimp.reading import ready
from blimp.web.answers import failed_answer, refused_command
from ground_station.page.picture import ABOUT, WHY
from ground_station.page.room import COUNT_S
from ground_station.page.source import Source
from ground_station.page.state import Hear
from ground_station.stops import NoShip

NICE = 10  # of 19: beside a busy operator's page it has a tenth of a processor (sched(7))
AGAIN_S = 1.0
RETRY_S = 0.5
FRESH_S = 0.5
ANSWER_S = 10.0
QUESTIONS = ("api/fleet", "api/queue", "api/setup", "api/chaos")
QUESTION_THREADS = 4
MOST_KEPT = 64
PROCESS = "ground_station.page.audience_process"
NO_COMMANDS = "this address accepts no commands"


@ready
class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """What the audience's process reads from its standard input."""

    host: str
    port: int
    relay: str
    viewer: str
    vehicle: str
    title: str


class Audience(Closing):
    """The process, kept alive; its address listens all the time."""

    def __init__(self, listening: socket.socket, *, upstream: Callable[[], Upstream]) -> None:
        self._listening, self._upstream = listening, upstream
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="audience", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            process = self._begin()
            if process is not None:
                process.wait()
            self._ended.wait(AGAIN_S)

    def _begin(self) -> "subprocess.Popen[bytes] | None":
        number = self._listening.fileno()
        command = [sys.executable, "-m", PROCESS, str(number)]
        with self._lock:
            if self._ended.is_set():
                return None
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, pass_fds=(number,),
                start_new_session=True,  # a Ctrl-C on the terminal is the page's to handle
            )  # fmt: skip
            stdin = self._process.stdin
            assert stdin is not None
            stdin.write(msgspec.json.encode(self._upstream()) + b"\n")
            stdin.flush()
            return self._process

    def close(self) -> None:
        with self._lock:
            self._ended.set()
            if self._process is not None and self._process.stdin is not None:
                self._process.stdin.close()
        if self._thread.is_alive():
            self._thread.join()


class RelayedShips(Closing):
    """The ships of the operator's page, as a viewer sees them."""

    def __init__(self, upstream: Upstream, *, clock: Clock) -> None:
        self._upstream, self._clock = upstream, clock
        self._lock = threading.Lock()
        self._names = [upstream.vehicle]
        self._named_s = -FRESH_S
        self._ships: dict[str, RelayedShip] = {}
        self.stoppable = NoShip(NO_COMMANDS)

    @property
    def vehicle(self) -> str:
        return self._upstream.vehicle

    def vehicles(self) -> list[str]:
        """Return the ships of the page; it is asked twice a second at most. Raises LinkError."""
        with self._lock:
            if self._clock.now_s() - self._named_s >= FRESH_S:
                try:
                    _, answer = ask(self._upstream, "api/ships")
                    self._names = msgspec.json.decode(answer)["vehicles"]
                except (OSError, http.client.HTTPException, msgspec.MsgspecError, KeyError):
                    raise LinkError("the operator's page does not answer") from None
                self._named_s = self._clock.now_s()
            return self._names

    def about(self, vehicle: str) -> dict[str, Any]:
        ship = self._ships.get(vehicle)
        return {} if ship is None else ship.about()

    def source(self, vehicle: str) -> Source:
        ship = self._ships[vehicle] = RelayedShip(vehicle, upstream=self._upstream)
        return ship

    def command(
        self, vehicle: str, name: str, arguments: dict[str, Any]  # noqa: ARG002
    ) -> tuple[int, dict[str, Any]]:  # fmt: skip
        raise LinkError(NO_COMMANDS)

    def close(self) -> None:
        """Do nothing: the sources are closed by their rooms."""


class RelayedShip(Closing):
    """One ship of the operator's page: one socket, however many look."""

    is_live = True

    def __init__(self, vehicle: str, *, upstream: Upstream) -> None:
        self.vehicle = vehicle
        self._upstream = upstream
        self._about: dict[str, Any] = {}
        self._votes: dict[str, Any] | None = None
        self._greeted = threading.Event()
        self._ended = threading.Event()
        self._socket: ClientConnection | None = None
        self._thread: threading.Thread | None = None

    def about(self) -> dict[str, Any]:
        """Return what the page's greeting says of the ship; waits for the first one."""
        self._greeted.wait(ANSWER_S)
        return self._about

    def start(self, hear: Hear) -> None:
        self._thread = threading.Thread(target=self._follow, args=(hear,), daemon=True)
        self._thread.start()

    def ask(self, kind: str, content: dict[str, Any]) -> None:
        """Take how the viewers vote, the only wish that they have; the thread passes it on."""
        if kind == "votes":
            self._votes = content

    def _follow(self, hear: Hear) -> None:
        one = self._upstream
        host = f"[{one.host}]" if ":" in one.host else one.host
        url = f"ws://{host}:{one.port}/api/socket?vehicle={quote(self.vehicle)}"
        headers = {"Authorization": f"Bearer {one.relay}"}
        while not self._ended.is_set():
            try:
                with connect(url, additional_headers=headers, compression=None) as self._socket:
                    self._exchange(self._socket, hear)
            except (OSError, WebSocketException, msgspec.MsgspecError, KeyError):
                pass
            self._ended.wait(RETRY_S)

    def _exchange(self, socket: ClientConnection, hear: Hear) -> None:
        sent = None
        while not self._ended.is_set():
            with contextlib.suppress(TimeoutError):
                self._pass_on(msgspec.json.decode(socket.recv(timeout=COUNT_S)), hear)
            if (votes := self._votes) is not sent:
                socket.send(msgspec.json.encode({"kind": "votes", "content": votes}).decode())
                sent = votes

    def _pass_on(self, message: dict[str, Any], hear: Hear) -> None:
        if message["kind"] == "hello":
            self._about = message["content"]["about"]
            self.is_live = message["content"]["is_live"]
            self._greeted.set()
        else:
            hear(message["kind"], message["content"])

    def close(self) -> None:
        self._ended.set()
        if self._socket is not None:
            self._socket.close()
        if self._thread is not None:
            self._thread.join()


class RelayedAnswers(Closing):
    """What viewers ask of the panels: the page is asked once for all who ask within FRESH_S."""

    def __init__(self, upstream: Upstream, *, clock: Clock) -> None:
        self._upstream, self._clock = upstream, clock
        self._threads = ThreadPoolExecutor(QUESTION_THREADS, thread_name_prefix="question")
        self._kept: dict[str, tuple[float, asyncio.Future[tuple[int, bytes]]]] = {}

    def routes(self) -> Sequence[Route]:
        return (Route("/api/{path:path}", self._answer, methods=["GET", "POST"]),)

    async def _answer(self, request: Request) -> Response:
        path = f"api/{request.path_params['path']}"
        if request.method == "POST" and (refused := refused_command(request, path[4:])):
            return refused
        if path not in QUESTIONS:
            return failed_answer("", f"nothing is at {path[:60]!r} for those who look", 404)
        vehicle = request.query_params.get("vehicle", "")[:100]
        path += f"?{urlencode({'vehicle': vehicle})}" if vehicle else ""
        asked_s, answer = self._kept.get(path, (0.0, None))
        if answer is None or (answer.done() and self._clock.now_s() - asked_s >= FRESH_S):
            loop = asyncio.get_running_loop()
            answer = loop.run_in_executor(self._threads, ask, self._upstream, path)
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[path] = self._clock.now_s(), answer
        try:
            status, body = await asyncio.shield(answer)
        except (OSError, http.client.HTTPException):
            return failed_answer("", "the operator's page does not answer", 503)
        return Response(body, status_code=status, media_type="application/json")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class RelayedPictures(Closing):
    """A ship's pictures, as the operator's page has them: one reader, however many look."""

    def __init__(self, upstream: Upstream, vehicle: str) -> None:
        self._upstream, self._vehicle = upstream, vehicle
        self.wait_s, self.words = 0.0, ""

    def next(self, after: int) -> Picture | None:
        path = f"api/picture?{urlencode({'vehicle': self._vehicle, 'after': after})}"
        try:
            with _answer_of(self._upstream, path) as answer:
                body, about, why = answer.read(), answer.headers[ABOUT], answer.headers[WHY]
            found = (
                msgspec.json.decode(about, type=dict[str, Any]) if answer.status == 200 else None
            )
            self.words, self.wait_s = why or "", 0.0 if found else RETRY_S
            return None if found is None else Picture(found, body, found["age_s"], found["took_s"])
        except (OSError, http.client.HTTPException, msgspec.MsgspecError, TypeError, KeyError):
            self.words, self.wait_s = "the operator's page does not answer", RETRY_S
            return None

    def close(self) -> None:
        """Do nothing: each request is a connection of its own."""


def ask(upstream: Upstream, path: str) -> tuple[int, bytes]:
    """Ask the operator's page as a viewer; return status and body."""
    with _answer_of(upstream, path) as answer:
        return answer.status, answer.read()


@contextlib.contextmanager
def _answer_of(upstream: Upstream, path: str) -> Iterator[http.client.HTTPResponse]:
    link = http.client.HTTPConnection(upstream.host, upstream.port, timeout=ANSWER_S)
    try:
        link.request("GET", f"/{path}", headers={"Authorization": f"Bearer {upstream.relay}"})
        yield link.getresponse()
    finally:
        link.close()
