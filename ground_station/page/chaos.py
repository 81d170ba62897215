"""The chaos panel's side of the server: harm to a simulated ship, and what the ship did about it.

The harm itself is done by `blimp sim chaos`, or by the demo that runs the ship. Without either
there is none here, and every request says so. Playing back a recorded command needs no access
to the ship's machine, so it is done here: it is what a stranger on the broker would do.
"""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from blimp.clock import Clock
from blimp.errors import BlimpError, ConfigError
from blimp.queue.redis.client import open_redis
from blimp.queue.redis.urls import link_errors
from blimp.reading import ready
from blimp.web.answers import arguments_of, failed_answer, json_answer, refused_command
from ground_station.page import DOWN
from ground_station.page.journey import Recorded
from ground_station.page.program import here, run_blimp
from ground_station.report import Outcome
from ground_station.session import Session

WITHIN_S = 120.0  # beyond the longest action and its wait
LOOK_S = 0.02
TAKEN_S = 5.0
SETTLED_S = 0.5  # then a snapshot shows what it did
REPLAY = "replay-command"
# The caption while an action goes on, and what a person does meanwhile.
NOW = {
    "kill-worker": "The worker is killed: commands wait in the queue until its successor is there.",
    "kill-flight": "The flight process is killed: the motors stop. Read what its successor says.",
    "stop-broker": "The broker is stopped: no command arrives, the ship holds by itself. Wait.",
    "cut-link": "The link is cut: no command arrives, the ship holds by itself. Wait.",
    "blind-position": "The position is blind: it keeps height and heading. Do not send it far.",
    "blind-sensor": "{device} is blind: watch what the ship says and does about it.",
    "freeze-sensor": "{device} is frozen: watch what the ship says and does about it.",
    "lie-sensor": "{device} lies: watch what the ship says and does about it.",
    "gust": "A gust comes from ahead: the ship flies back to its place by itself.",
    "heat": "The air is heated: the ship gets lighter or heavier, and pushes against it.",
    "leak": "Gas leaks for good: the ship gets heavier. Land if it cannot hold its height.",
    "hold-ship": "A person holds the ship: it stays until it is let go of.",
    "let-go": "The ship is let go of.",
    "replay-command": "The last command is sent again, as it was recorded.",
}
NONE_HERE = "no chaos here: it is in the demo's page, and in that of `ground page --chaos`"


class Harm(Protocol):
    """What does the harm. Both raise BlimpError with the reason."""

    def offers(self) -> Sequence[Any]:
        """Return what can be done now: `name`, `text`, and `unit`, `most`, `why`, `devices`."""
        ...

    def act(self, name: str, *, amount: float | None = None, device: str | None = None) -> Any:
        """Do it, wait until the ship is well, and return what it did, with a `sentence` of it."""
        ...


class Program:
    """`blimp sim chaos` of this machine. runtime_dir: of the stack that is harmed.

    The ground station knows no simulator: it runs the program, as a person would.
    """

    def __init__(self, runtime_dir: Path, *, key_file: Path | None = None) -> None:
        self._where = ("--runtime-dir", str(runtime_dir))
        self._key_file = key_file

    def offers(self) -> Sequence[Any]:
        found: list[Any] = self._run()
        return found

    def act(self, name: str, *, amount: float | None = None, device: str | None = None) -> Any:
        words = [] if amount is None else [f"--amount={amount!r}"]
        words += [] if device is None else [f"--device={device}"]
        return self._run(*words, "--", name)

    def _run(self, *words: str) -> Any:
        command = ("sim", "chaos", "--json", *self._where, *words)
        return run_blimp(*command, within_s=WITHIN_S, key_file=self._key_file)


def local_harm(session: Session) -> Program:
    """Return what harms the session's ship. Raises ConfigError if it is none of this machine."""
    vehicle = session.ship.vehicle
    place = here(session, vehicle)
    if place is None or not place.is_simulated:
        raise ConfigError(f"--chaos: {vehicle} is not a simulated ship on this machine")
    harm = Program(place.directory, key_file=session.options.signing_key_file)
    try:
        harm.offers()
    except BlimpError as error:
        raise ConfigError(f"--chaos: {error}") from error
    return harm


class ChaosRoom:
    """Routes below `/api/chaos`. harm: None where there is to be none.

    recorded: returns the last command that passed the queue; None before the first.
    """

    def __init__(
        self,
        harm: Harm | None,
        *,
        session: Session,
        recorded: Callable[[], Recorded | None],
    ) -> None:
        self._harm = harm
        self._session = session
        self._recorded = recorded
        self._busy = threading.Lock()
        self._doing = ""

    def routes(self) -> Sequence[Route]:
        return (
            Route("/api/chaos", self._show),
            Route("/api/chaos/{name}", self._act, methods=["POST"]),
        )

    async def _show(self, request: Request) -> Response:
        if self._harm is None:
            return failed_answer("chaos", NONE_HERE, 404)
        if refused := refused_command(request, "chaos"):
            return refused
        try:
            offers = list(await run_in_threadpool(self._harm.offers))
        except BlimpError as error:
            return failed_answer("chaos", str(error), 503)
        return json_answer({"offers": [*offers, {"name": REPLAY, "text": "Replay a command"}]})

    async def _act(self, request: Request) -> Response:
        name = request.path_params["name"]
        task = f"chaos.{name}"[:80]
        if self._harm is None:
            return failed_answer(task, NONE_HERE, 404)
        if refused := refused_command(request, task):
            return refused
        arguments = await arguments_of(request)
        if isinstance(arguments, Response):
            return arguments
        try:
            wish = msgspec.convert(arguments, _Wish)
        except msgspec.ValidationError as error:
            return failed_answer(task, f"{name[:40]}: {error}", 400)

        tell = request.app.state.tell
        return json_answer(await run_in_threadpool(self.act, name, wish, tell=tell))

    def act(self, name: str, wish: "_Wish", *, tell: Callable[[str, Any], None]) -> Outcome:
        """Do one action, and no second one meanwhile. tell: gets a kind and what is new of it.

        The kinds are "caption", a line of the story, "down", the stages that are down, and "votes":
        the room's are for the fault after this one.
        """
        task = f"chaos.{name}"[:80]
        assert self._harm is not None
        if not self._busy.acquire(blocking=False):
            return Outcome(id=None, task=task, state="REFUSED", reason=f"{self._doing} goes on")
        try:
            self._doing = name
            words = NOW.get(name, f"{name[:60]} is under way: watch what the ship does about it.")
            tell("caption", {"text": words.replace("{device}", str(wish.device)[:60])})
            tell("down", DOWN.get(name, ()))
            tell("votes", None)
            if name == REPLAY:
                result = self._replay()
            else:
                report = self._harm.act(name, amount=wish.amount, device=wish.device)
                result = msgspec.to_builtins(report)
        except BlimpError as error:
            tell("caption", {"text": f"{name.replace('-', ' ')[:60]}: not done: {error}"})
            return Outcome(id=None, task=task, state="REFUSED", reason=str(error))
        finally:
            tell("down", ())
            self._busy.release()
        tell("caption", {"text": result["sentence"]})
        return Outcome(id=None, task=task, state="SUCCESS", result=result)

    # --- a recorded command, played back ----------------------------------------------------

    def _replay(self) -> dict[str, Any]:
        """Put the last command into the queue once more, as it was, and see what it does."""
        recorded = self._recorded()
        if recorded is None:
            raise BlimpError(
                "there is no command to replay since the page was opened: send one first"
            )
        clock: Clock = self._session.clock
        ship = self._session.ship
        with (
            link_errors(ship.broker),
            open_redis(ship.broker, timeout_s=2.0) as redis,
            self._session.reader(ship) as reader,
        ):
            before = reader.latest()
            began_s = clock.now_s()
            entry = redis.xadd(recorded.stream, recorded.fields)
            while redis.xrange(recorded.stream, entry, entry):
                if clock.now_s() - began_s > TAKEN_S:
                    raise BlimpError(f"no worker has taken the copy within {TAKEN_S:g} s")
                clock.sleep_until(clock.now_s() + LOOK_S)
            took_s = clock.now_s() - began_s
            clock.sleep_until(clock.now_s() + SETTLED_S)
            after = reader.latest()
        seen = []
        if before is not None and after is not None:
            for field in ("mode", "armed", "killed", "active_command", "target_ned_m"):
                was, now = (getattr(one[0], field) for one in (before, after))
                if was != now:
                    seen.append(f"{field}: {was} to {now}")
        took_ms, did = round(1e3 * took_s), seen or ["taken, and without effect"]
        words = f"{recorded.command} was sent again as it was recorded"
        return {
            "action": REPLAY,
            "down_s": 0.0,
            "back_ms": took_ms,
            "off_m": None,
            "words": words,
            "lost": "",
            "sentence": f"{words}: {'; '.join(did)}.",
            "seen": [{"after_ms": took_ms, "text": one} for one in did],
        }


@ready
class _Wish(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    amount: float | None = None
    device: str | None = None
