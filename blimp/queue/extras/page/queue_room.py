"""What the page shows of queues, and changes: as the commands of `python -m blimp.queue` do it.

Its questions cost the broker and the workers a little, so they are asked once for all viewers and
at most every `FRESH_S`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.closing import Closing
from blimp.errors import BlimpError, ConfigError, LinkError, UnknownName
from blimp.queue.brokers.streams.dead_letters import DeadLetter, DeadLetters
from blimp.queue.brokers.streams.unique_claims import UniqueClaims
from blimp.queue.celery.control.command_sender import send_command
from blimp.queue.operations import open_session, requeue_dead, send_again
from blimp.queue.protocol.record import Record, State, repr_of
from blimp.queue.scheduler import Timetable
from blimp.queue.silence import explain
from blimp.web.answers import arguments_of, failed_answer, json_answer, refused_command
from blimp.web.outcome import Outcome

if TYPE_CHECKING:
    from blimp.clock import Clock
    from blimp.queue.app import TaskApp

FRESH_S = 1.0
WORKERS_S = 0.3  # how long to wait for the next worker's answer
MAX_LETTERS = 50
MAX_FAILURES = 50
MAX_ACTIVE = 50
MAX_QUEUES = 64
MAX_CLAIMS = 50  # of a queue; `blimp-queue queues unique` lists more
MAX_TEXT = 200
MAX_TRACEBACK = 20_000  # letters; its end says more than its beginning
MAX_NUMBER = 2**53  # integers below it are exact in a float, and in a browser
MAX_SEARCHES = 4  # at once: each may look at 100,000 messages, in one thread of the server
_ID = re.compile(r"[\w-]{1,100}", re.ASCII)
_LETTER = re.compile(r"\d{1,20}-\d{1,20}", re.ASCII)
_NAME = re.compile(rf".{{1,{MAX_TEXT}}}")
# Each action, and what its `id` is.
ACTIONS = {
    "requeue": _LETTER, "drop": _LETTER,
    "revoke": _ID, "retry": _ID,
    "pause": _NAME, "resume": _NAME, "purge": _NAME,
    "run-schedule": _NAME, "pause-schedule": _NAME, "resume-schedule": _NAME,
}  # fmt: skip
_SHOWN_HEADERS = ("task", "id", "kwargsrepr", "blimp_source")  # never the signature or the token


class QueueRoom(Closing):
    """Routes below `/api/queue`.

    open_app: returns a context of the app that a request is about, by the ship in its
        `?vehicle=`, "" for none. Any thread; several may be open at once.
    counted: returns the queues of all ships, by the ship; None if there are no ships: then those
        of the app are counted.
    actions: the names of those in ACTIONS that it takes.
    """

    def __init__(
        self,
        open_app: Callable[[str], AbstractContextManager[TaskApp]],
        *,
        clock: Clock,
        counted: Callable[[], dict[str, str]] | None = None,
        actions: Sequence[str] = tuple(ACTIONS),
    ) -> None:
        self._open_app = open_app
        self._clock = clock
        self._counted = counted
        self._actions = actions
        self._looking = threading.Lock()  # viewers who look at once share one answer
        self._searches = threading.BoundedSemaphore(MAX_SEARCHES)
        self._known: dict[str, tuple[float, dict[str, Any]]] = {}

    def routes(self) -> Sequence[Route]:
        return (
            Route("/api/queue", self._show),
            Route("/api/queue/task", self._show_task),
            Route("/api/queue/{action}", self._act, methods=["POST"]),
        )

    def close(self) -> None:
        self._known.clear()

    # --- what is asked for ------------------------------------------------------------------

    async def _show(self, request: Request) -> Response:
        try:
            found = await run_in_threadpool(self.look, _name_of(request))
        except BlimpError as error:
            return _failed("queue", error)
        return json_answer(found | {"may_command": request.state.role == "operator"})

    async def _show_task(self, request: Request) -> Response:
        id = request.query_params.get("id", "")
        if not _ID.fullmatch(id):
            return failed_answer("queue.task", f"id {id!r:.60}: must be that of a task", 400)
        if not self._searches.acquire(blocking=False):
            reason = f"{MAX_SEARCHES} searches go on, which is the limit: try again"
            return failed_answer("queue.task", reason, 503)
        try:
            return json_answer(await run_in_threadpool(self.find, _name_of(request), id))
        except BlimpError as error:
            return _failed("queue.task", error)
        finally:
            self._searches.release()

    async def _act(self, request: Request) -> Response:
        action = request.path_params["action"]
        task = f"queue.{action}"
        if refused := refused_command(request, task):
            return refused
        if action not in self._actions:
            known = ", ".join(self._actions)
            return failed_answer("queue", f"no action {action[:40]!r}: {known}", 404)
        arguments = await arguments_of(request)
        if isinstance(arguments, Response):
            return arguments
        id, queue = arguments.get("id"), arguments.get("queue")
        if not isinstance(id, str) or not ACTIONS[action].fullmatch(id):
            return failed_answer(task, f"id {id!r:.60}: must be one that is shown", 400)
        if not (queue is None or isinstance(queue, str)):
            return failed_answer(task, f"queue {queue!r:.60}: must be a name that is shown", 400)
        try:
            answer = await run_in_threadpool(self.act, _name_of(request), action, id, queue)
        except BlimpError as error:
            return _failed(task, error)
        return json_answer(answer)

    # --- the queues -------------------------------------------------------------------------

    def look(self, name: str) -> dict[str, Any]:
        """Return queues, workers, failures, dead letters and schedules. Raises BlimpError.

        A rate is the difference of two answers: `t_s` is this machine's monotonic clock.
        """
        with self._looking:
            now_s, known = self._clock.now_s(), self._known
            at_s, found = known.get(name, (-FRESH_S, {}))
            if now_s - at_s >= FRESH_S:
                counted = None if self._counted is None else self._counted()
                # Each name costs a look, and a viewer may make up any.
                if counted is not None and name and name not in counted:
                    names = ", ".join(counted)
                    raise UnknownName(
                        f"no ship {name[:40]!r} has sent telemetry; the ships are {names}"
                    )
                with self._app(name) as app:
                    found = self._ask(app, counted) | {"t_s": now_s}
                known[name] = (self._clock.now_s(), found)
            return found

    def _ask(self, app: TaskApp, counted: dict[str, str] | None) -> dict[str, Any]:
        counted = counted or {one: one for one in _queues(app)}
        with open_session(app) as session:
            queues = {
                shown: session.store.counts(session.keys.queue(queue))
                for shown, queue in list(counted.items())[:MAX_QUEUES]
            }
            dead = [
                _letter(letter)
                for queue in _queues(app)
                for letter in DeadLetters(store=session.store, queue=queue).list(limit=MAX_LETTERS)
            ]
            claims = [
                msgspec.to_builtins(one) | {"queue": queue}
                for queue in _queues(app)
                for one in UniqueClaims(session.store).held(queue, limit=MAX_CLAIMS)
            ]
        stats = send_command(app, "stats", timeout_s=WORKERS_S)
        active = send_command(app, "active", timeout_s=WORKERS_S)
        workers = {name: _worker(one, active.get(name)) for name, one in stats.items()}
        failures, trouble = _failures(app)
        return {
            "app": app.name,
            "queues": msgspec.to_builtins(queues),
            "workers": workers,
            "dead": dead,
            "unique": claims,
            "failures": failures,
            "trouble": trouble,
            "schedules": msgspec.to_builtins(Timetable(app).states()),
            "actions": self._actions,
        }

    def find(self, name: str, id: str) -> dict[str, Any]:
        """Return what is known of a task: its record, and where its message is.

        Raises BlimpError.
        """
        with self._app(name) as app:
            results = app.results
            record = Record(id=id, state=State.PENDING) if results is None else results.get(id)
            place = "" if record.final else explain(app, id)
        return _failure(record) | {
            "place": _shown(place),
            "result": _shown(repr_of(record.result)) if record.state is State.SUCCESS else "",
            "traceback": (record.traceback or "")[-MAX_TRACEBACK:],
        }

    def act(self, name: str, action: str, id: str, queue: str | None = None) -> Outcome:
        """Do what one of ACTIONS names; return its outcome. Raises BlimpError.

        queue: that of a dead letter; the app's own by default.
        """
        try:
            with self._app(name) as app:
                if action in ("requeue", "drop"):
                    return _act_on_letter(app, action, id, _queue(app, queue or app.queue))
                words = _DO[action](app, id)
        finally:
            self._known = {}  # a look under way writes what it saw before to the old one
        return Outcome(id=id, task=f"queue.{action}", state="SUCCESS", result=words)

    @contextmanager
    def _app(self, name: str) -> Iterator[TaskApp]:
        """Yield the app of a request; redis-py's errors become LinkError."""
        from redis.exceptions import RedisError

        try:
            with self._open_app(name) as app:
                yield app
        except RedisError as error:
            raise LinkError(f"the broker does not answer: {error}") from error


def _name_of(request: Request) -> str:
    """Return the name that a request has. Raises UnknownName for what is no name."""
    name = request.query_params.get("vehicle", "")
    if len(name) > MAX_TEXT or not name.isprintable():
        raise UnknownName(f"no ship {name[:40]!r}")
    return name


def _failed(task: str, error: BlimpError) -> Response:
    return failed_answer(task, str(error), 404 if isinstance(error, UnknownName) else 503)


def _queues(app: TaskApp) -> list[str]:
    """Return the queues of the app's tasks, its own first."""
    others = {task.options.queue for task in app.tasks.values()} - {None, app.queue}
    return [app.queue, *sorted(filter(None, others))]


def _queue(app: TaskApp, name: str) -> str:
    """Return `name` if it is a queue of the app. Raises UnknownName."""
    if name not in _queues(app):
        raise UnknownName(f"no queue {name!r:.80} of app {app.name!r}")
    return name


# --- what is done -------------------------------------------------------------------------------


def _act_on_letter(app: TaskApp, action: str, id: str, queue: str) -> Outcome:
    with open_session(app) as session:
        letters = DeadLetters(store=session.store, queue=queue)
        letter = letters.show(id)
        if letter is None:
            reason = f"no dead letter {id}: somebody was faster"
            return Outcome(id=id, task=f"queue.{action}", state="FAILURE", reason=reason)
        if action == "requeue":
            requeue_dead(app, letters, letter)
        else:
            letters.drop(id)
    return Outcome(id=id, task=f"queue.{action}", state="SUCCESS")


def _retry(app: TaskApp, id: str) -> str:
    if app.results is None:
        raise ConfigError(f"app {app.name!r} keeps no results: it has no result_backend")
    record = app.results.get(id)
    if record.state is State.PENDING:
        raise UnknownName(f"no result of task {id}: only a task that has ended can be sent again")
    return f"sent again as {send_again(app, record)}"


def _pause(app: TaskApp, name: str, *, resume: bool = False) -> str:
    with open_session(app) as session:
        session.store.pause(session.keys.queue(_queue(app, name)), resume=resume)
    return "delivered" if resume else "paused: emergencies are delivered, nothing else"


def _purge(app: TaskApp, name: str) -> str:
    with open_session(app) as session:
        return f"{session.store.purge(session.keys.queue(_queue(app, name)))} dropped"


def _pause_schedule(app: TaskApp, name: str) -> str:
    Timetable(app).pause(name)
    return "paused"


def _resume_schedule(app: TaskApp, name: str) -> str:
    Timetable(app).resume(name)
    return "sent from its next tick on"


_DO: dict[str, Callable[[TaskApp, str], str]] = {
    "revoke": lambda app, id: str(app.revoke(id)),
    "retry": _retry,
    "pause": _pause,
    "resume": lambda app, name: _pause(app, name, resume=True),
    "purge": _purge,
    "run-schedule": lambda app, name: f"sent as {Timetable(app).run(name).id}",
    "pause-schedule": _pause_schedule,
    "resume-schedule": _resume_schedule,
}


# --- what is shown ------------------------------------------------------------------------------


def _failures(app: TaskApp) -> tuple[list[dict[str, Any]], str]:
    """Return the newest failures of the app's tasks, and why they are not known."""
    if app.results is None:
        return [], "This app keeps no results: it has no result_backend."
    try:
        # An app without tasks only sends them: its own are those that its queue had.
        records = app.results.failures(limit=MAX_FAILURES, names=app.tasks or None)
    except BlimpError as error:
        return [], str(error)
    own = (one for one in records if app.tasks or one.queue in (None, app.queue))
    return [_failure(one) for one in own], ""


def _failure(record: Record) -> dict[str, Any]:
    return {
        "id": record.id,
        "task": _shown(record.name or ""),
        "state": record.state.value,
        "done": record.date_done or "",
        "error": _shown(record.fault.exc_type if record.fault else ""),
        "reason": _shown(record.reason),
        "arguments": "not stored" if record.args is None else _call(record.args, record.kwargs),
        "may_retry": record.name is not None and record.args is not None,
        "worker": _shown(record.worker or ""),
        "queue": _shown(record.queue or ""),
        "retries": record.retries,
    }


def _call(args: object, kwargs: object) -> str:
    """Return arguments as they stand in a call."""
    words = [repr_of(one) for one in args] if isinstance(args, list) else []
    words += [f"{name}={repr_of(one)}" for name, one in _object(kwargs).items()]
    return _shown(", ".join(words))


def _shown(value: object) -> str:
    """Return a text of up to MAX_TEXT letters, with an ellipsis for what is left out."""
    text = str(value)
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _letter(letter: DeadLetter) -> dict[str, Any]:
    headers = letter.headers if isinstance(letter.headers, dict) else {}
    shown = {name: _shown(headers.get(name) or "") for name in _SHOWN_HEADERS}
    return {
        "letter": letter.id,
        "queue": letter.queue,
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
        "ended": _ended(said.get("blimp_ended")),
        "total": {_shown(name): _number(count) for name, count in total.items()},
        "active": [
            {
                "id": str(one.get("id"))[:MAX_TEXT],
                "name": _shown(one.get("name")),
                "arguments": _call(one.get("args"), one.get("kwargs")),
            }
            for one in tasks[:MAX_ACTIVE]
        ],
    }


def _ended(said: object) -> dict[str, dict[str, float]]:
    """Return how often each task of a worker ended in each state."""
    found: dict[str, dict[str, float]] = {}
    for one in said if isinstance(said, list) else []:
        match one:
            case [str(task), str(state), count]:
                found.setdefault(_shown(task), {})[_shown(state)] = _number(count)
    return found


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object, scale: float = 1.0) -> float:
    """Return a number that a worker said, 0 for what is none or is too large."""
    if isinstance(value, int | float) and abs(value) < MAX_NUMBER:
        return scale * value
    return 0.0
