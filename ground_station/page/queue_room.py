"""The queue room: what `python -m blimp.queue queues|dead|inspect|revoke` says and does.

Its questions cost the broker and the worker a little, so they are asked once for all viewers and at
most every `FRESH_S`. Nothing here can send a command: a dead letter that is requeued is the message
that it was, and the worker refuses it if its time to live is over.
"""

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.closing import Closing
from blimp.errors import BlimpError, ConfigError, LinkError
from blimp.queue.app import TaskApp
from blimp.queue.brokers.streams.store import DeadLetter, DeadLetters
from blimp.queue.cli.queues import open_session, requeue_dead
from blimp.queue.control.command import send_command
from blimp.tasks.client import vehicle_queue
from ground_station.page.answers import arguments_of, failed_answer, json_answer, refused_command
from ground_station.report import Outcome
from ground_station.session import Session

FRESH_S = 1.0
WORKERS_S = 0.3  # how long to wait for the next worker's answer
MAX_LETTERS = 50
MAX_ACTIVE = 50
MAX_TEXT = 200
MAX_SHIPS = 64
ID = re.compile(r"[\w-]{1,100}", re.ASCII)
LETTER = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)
ACTIONS = ("requeue", "drop", "revoke")
_SHOWN_HEADERS = ("task", "id", "kwargsrepr", "blimp_source")  # never the signature or the token


class QueueRoom(Closing):
    """Routes below `/api/queue` for the queues of the ships on the session's broker.

    vehicles: returns the ships whose queues are counted.
    """

    def __init__(self, session: Session, *, vehicles: Callable[[], list[str]]) -> None:
        self._session = session
        self._vehicles = vehicles
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    def routes(self) -> Sequence[Route]:
        return (
            Route("/api/queue", self._show),
            Route("/api/queue/{action}", self._act, methods=["POST"]),
        )

    def close(self) -> None:
        self._known.clear()

    # --- what is asked for ------------------------------------------------------------------

    async def _show(self, request: Request) -> Response:
        try:
            return json_answer(await run_in_threadpool(self.look, _ship_of(request, self._session)))
        except BlimpError as error:
            return failed_answer("queue", str(error), 503)

    async def _act(self, request: Request) -> Response:
        action = request.path_params["action"]
        if refused := refused_command(request, f"queue.{action}"):
            return refused
        if action not in ACTIONS:
            return failed_answer("queue", f"no action {action[:40]!r}: {', '.join(ACTIONS)}", 404)
        arguments = await arguments_of(request)
        if isinstance(arguments, Response):
            return arguments
        id, pattern = arguments.get("id"), ID if action == "revoke" else LETTER
        if not isinstance(id, str) or not pattern.fullmatch(id):
            return failed_answer(
                f"queue.{action}", f"id {id!r:.60}: must be one that is shown", 400
            )
        try:
            vehicle = _ship_of(request, self._session)
            outcome = await run_in_threadpool(self.act, vehicle, action, id)
        except BlimpError as error:
            return failed_answer(f"queue.{action}", str(error), 503)
        return json_answer(outcome)

    # --- the queue --------------------------------------------------------------------------

    def look(self, vehicle: str) -> dict[str, Any]:
        """Return the queues of all ships, and workers and dead letters of one. Raises BlimpError.

        A rate is the difference two answers: `t_s` is this machine's monotonic clock.
        """
        with self._lock:
            now_s = self._session.clock.now_s()
            at_s, found = self._known.get(vehicle, (-FRESH_S, {}))
            if now_s - at_s >= FRESH_S:
                found = self._ask(vehicle) | {"t_s": now_s, "vehicle": vehicle}
                self._known[vehicle] = (self._session.clock.now_s(), found)
            return found

    def _ask(self, vehicle: str) -> dict[str, Any]:
        names = self._vehicles()[:MAX_SHIPS]
        if vehicle not in names:  # each name costs a look, and a viewer may make up any
            raise LinkError(f"no ship {vehicle[:40]!r} is heard; there are {', '.join(names)}")
        with self._app(vehicle) as app:
            with open_session(app) as session:
                queues = {
                    name: session.store.counts(session.keys.queue(vehicle_queue(name)))
                    for name in names
                }
                letters = DeadLetters(store=session.store, queue=app.queue)
                dead = [_letter(one) for one in letters.list(limit=MAX_LETTERS)]
            stats = send_command(app, "stats", timeout_s=WORKERS_S)
            active = send_command(app, "active", timeout_s=WORKERS_S)
        workers = {name: _worker(one, active.get(name)) for name, one in stats.items()}
        return {"queues": msgspec.to_builtins(queues), "dead": dead, "workers": workers}

    def act(self, vehicle: str, action: str, id: str) -> Outcome:
        """Requeue or drop a dead letter, or revoke a task. Raises BlimpError."""
        with self._lock:
            self._known.clear()
        with self._app(vehicle) as app:
            if action == "revoke":
                words = str(app.revoke(id))
                return Outcome(id=id, task="queue.revoke", state="SUCCESS", result=words)
            with open_session(app) as session:
                letters = DeadLetters(store=session.store, queue=app.queue)
                letter = letters.show(id)
                if letter is None:
                    reason = f"no dead letter {id}: somebody was faster"
                    return Outcome(id=id, task=f"queue.{action}", state="FAILURE", reason=reason)
                if action == "requeue":
                    requeue_dead(app, letters, letter)
                else:
                    letters.drop(id)
        return Outcome(id=id, task=f"queue.{action}", state="SUCCESS")

    @contextmanager
    def _app(self, vehicle: str) -> Iterator[TaskApp]:
        """Yield an app of the ship's queue, which knows no task. Raises LinkError."""
        from redis.exceptions import RedisError

        broker, queue = self._session.ship.broker, vehicle_queue(vehicle)
        app = TaskApp(
            queue,
            broker=broker,
            result_backend=broker,
            queue=queue,
            signing_key=self._session.signing_keys,
        )
        try:
            with app:
                yield app
        except RedisError as error:
            raise LinkError(f"the broker does not say: {error}") from error


def _ship_of(request: Request, session: Session) -> str:
    """Return the ship that a request names. Raises ConfigError for what is no name."""
    name = request.query_params.get("vehicle") or session.ship.vehicle
    if len(name) > MAX_TEXT or not name.isprintable():
        raise ConfigError(f"no ship {name[:40]!r}")
    return name


def _shown(value: object) -> str:
    """Return a text of up to MAX_TEXT letters, with an ellipsis for what is left out."""
    text = str(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _letter(letter: DeadLetter) -> dict[str, Any]:
    headers = letter.headers if isinstance(letter.headers, dict) else {}
    shown = {name: _shown(headers.get(name) or "") for name in _SHOWN_HEADERS}
    return {
        "letter": letter.id,
        "reason": _shown(letter.reason),
        "deliveries": letter.deliveries,
        **shown,
    }


def _worker(stats: Any, active: Any) -> dict[str, Any]:
    """Return what is shown of a worker, which may say anything."""
    said = _object(stats)
    pool, used, total = (_object(said.get(name)) for name in ("pool", "rusage", "total"))
    tasks = [_object(one) for one in active] if isinstance(active, list) else []
    return {
        "pid": _number(said.get("pid")),
        "uptime_s": _number(said.get("uptime")),
        "threads": _number(pool.get("threads")),
        "memory_mb": _number(used.get("maxrss"), 1 / 1024),
        "cpu_s": _number(used.get("utime")) + _number(used.get("stime")),
        "total": {_shown(name): _number(count) for name, count in total.items()},
        "active": [
            {
                "id": str(one.get("id"))[:MAX_TEXT],
                "name": _shown(one.get("name")),
                "arguments": _shown(one.get("kwargs")),
            }
            for one in tasks[:MAX_ACTIVE]
        ],
    }


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object, scale: float = 1.0) -> float:
    return scale * value if isinstance(value, int | float) else 0.0
