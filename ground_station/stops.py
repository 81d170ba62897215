"""Emergency stops of one ship or of all: each ship has threads of its own, made before the press.

A stop waits for its ship's confirmation. So that it never waits for another ship's, nor for a
command, a viewer or a question to a broker, no thread is shared.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any, Protocol

import msgspec

from blimp.closing import Closing
from blimp.errors import BlimpError, LinkError
from blimp.web.outcome import Outcome

# Two operators who press again while an attempt goes on; further presses wait for one of these,
# which repeats its stop all the time.
PRESSES = 4
MAX_SHIPS = 64
TASK = "blimp.estop"
NO_SHIP = "no ship to stop: none runs on this machine, and none was heard on the broker"

OnEnd = Callable[[str, Outcome], object]
Find = Callable[[], Iterable[str]]


class Stoppable(Protocol):
    """The ships that can be stopped, by their names: see `ground_station.every_ship`."""

    def finders(self) -> Sequence[Find]:
        """Return what finds the ships: the first at once, the others may wait for a broker."""
        ...

    def ready(self, vehicle: str) -> None:
        """Connect what this ship's emergency stop uses. May take a while, or raise BlimpError."""
        ...

    def stop(self, vehicle: str) -> Outcome:
        """Send an emergency stop; return how it ended. May raise BlimpError."""
        ...


class NoShip:
    """What a page stops that has no ship. reason: why it refuses."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def finders(self) -> Sequence[Find]:
        return ()

    def ready(self, vehicle: str) -> None:
        """Do nothing."""

    def stop(self, vehicle: str) -> Outcome:  # noqa: ARG002
        return Outcome(id=None, task=TASK, state="REFUSED", reason=self._reason)


class Stops(Closing):
    """Stops of every ship. Thread-safe; no call waits."""

    def __init__(self, ships: Stoppable) -> None:
        self._ships = ships
        self._lock = threading.Lock()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._others = ThreadPoolExecutor(PRESSES, thread_name_prefix="estop")
        self._finding = ThreadPoolExecutor(PRESSES, thread_name_prefix="estop all")

    def prepare(self, vehicle: str) -> ThreadPoolExecutor:
        """Have a ship's threads and connection ready before they are needed; return the threads.

        Those beyond MAX_SHIPS share theirs.
        """
        with self._lock:
            if vehicle not in self._threads and len(self._threads) < MAX_SHIPS:
                threads = ThreadPoolExecutor(PRESSES, thread_name_prefix=f"estop {vehicle}")
                self._threads[vehicle] = threads
                threads.submit(self._prepared, vehicle)
            return self._threads.get(vehicle, self._others)

    def press(self, vehicle: str) -> "Future[Outcome]":
        """Stop a ship."""
        return self.prepare(vehicle).submit(self._stopped, vehicle)

    def press_all(self, *, on_end: OnEnd = lambda *_: None) -> "Future[dict[str, Any]]":
        """Stop every ship: those that are known at once, the others as soon as they are found.

        Return what `together` says; raise BlimpError if there is no ship. on_end: called with each
        ship's outcome, in any thread.
        """
        with self._lock:
            known = list(self._threads)
        pressed = {vehicle: self._pressed(vehicle, on_end) for vehicle in known}
        return self._finding.submit(self._press_found, pressed, on_end)

    def _press_found(self, pressed: "dict[str, Future[Outcome]]", on_end: OnEnd) -> dict[str, Any]:
        troubles: list[BlimpError] = []

        def press(find: Find) -> None:
            try:
                for vehicle in find():
                    if vehicle not in pressed:
                        pressed[vehicle] = self._pressed(vehicle, on_end)
            except BlimpError as error:  # a ship that cannot be asked may fly
                troubles.append(error)

        finders = self._ships.finders()
        for find in finders[:1]:
            press(find)
        with ThreadPoolExecutor(max(1, len(finders))) as asking:
            for asked in as_completed([asking.submit(find) for find in finders[1:]]):
                press(asked.result)
        if not pressed:
            raise troubles[0] if troubles else LinkError(NO_SHIP)
        outcomes = {name: one.result() for name, one in pressed.items()}
        return together(outcomes, tuple(map(str, troubles)))

    def _pressed(self, vehicle: str, on_end: OnEnd) -> "Future[Outcome]":
        one = self.press(vehicle)
        one.add_done_callback(lambda ended: on_end(vehicle, ended.result()))
        return one

    def _stopped(self, vehicle: str) -> Outcome:
        try:
            return self._ships.stop(vehicle)
        except BlimpError as error:
            return Outcome(id=None, task=TASK, state="FAILURE", reason=str(error))

    def _prepared(self, vehicle: str) -> None:
        with contextlib.suppress(BlimpError):  # without a broker the press connects
            self._ships.ready(vehicle)

    def close(self) -> None:
        for threads in (self._finding, self._others, *self._threads.values()):
            threads.shutdown(cancel_futures=True)
        self._threads.clear()


def together(outcomes: Mapping[str, Outcome], troubles: Sequence[str]) -> dict[str, Any]:
    """Return how a stop of every ship ended: as that of the only one, or the worst of several.

    troubles: why there may be ships that nobody has stopped. `ships` has each ship's outcome.
    """
    missing = {name: one for name, one in outcomes.items() if one.state != "SUCCESS"}
    reasons = [f"{name}: {one.reason or one.state}" for name, one in sorted(missing.items())]
    states = {one.state for one in missing.values()} | ({"FAILURE"} if troubles else set())
    whole = Outcome(
        id=None,
        task=TASK,
        state=min(states, default="SUCCESS"),
        latency_ms=max(one.latency_ms or 0.0 for one in outcomes.values()),
    )
    if len(outcomes) == 1 and not troubles:
        (whole,) = outcomes.values()
    found: dict[str, Any] = msgspec.to_builtins(whole)
    if states:
        found["reason"] = f"not confirmed: {'; '.join((*reasons, *troubles))}"
    found["ships"] = {name: msgspec.to_builtins(one) for name, one in sorted(outcomes.items())}
    return found
