"""`blimp demo --ships N`: a pilot for each ship, and one too many.

The stack is `blimp up --sim --ships N`. Every pilot is a `ground dispatch --any` of its own, as if
typed on N laptops at once. The last one is refused with the names of those who have the ships.
"""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from blimp.clock import SystemClock
from blimp.config import signing_keys_from_environment
from blimp.link.paths import RuntimePaths
from blimp.processes import Child
from blimp.service.show.chaos import Chaos
from blimp.service.show.demo import (
    DemoOptions,
    Say,
    Tell,
    flyable,
    newest,
    recorded_since,
    say_replay,
    starting_stack,
)
from blimp.service.show.demo_page import demo_page
from blimp.service.stack.supervisor import StackError
from blimp.service.stack.up import crowded, vehicle_names
from ground_station.report import NOT_AUTHORISED

PILOTS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan")
END_S = 30.0  # time for a pilot's ship to hold, and to be released
FREE_WAIT_S = "20"  # until every ship has entered the pool
# Chosen: three times that, as the interpreters of nine pilots start at once on two cores.
TAKEN_WITHIN_S = 60.0


class Pilot:
    """One `ground dispatch`: repeats its output with the pilot's name before each line."""

    def __init__(
        self, name: str, *, broker: str, mission: str, wait_s: str | None, say: Say
    ) -> None:
        self.name = name
        self._say = say
        self.lines: list[str] = []
        self.has_ship = False
        self.answered = threading.Event()  # it has a ship, or its program has ended
        waiting = () if wait_s is None else ("--wait", wait_s)
        self._child = Child(
            name=name,
            arguments=[
                sys.executable, "-m", "ground_station", "dispatch", "--any", mission,
                "--yes", "--pilot", name, *waiting,
            ],
            environment={"BLIMP_BROKER_URL": broker, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._reader.start()

    def finish(self) -> dict[str, Any]:
        """Wait for its end; return its exit status and last line."""
        self._reader.join()  # its output ends when it does
        self._child.end(within_s=END_S)
        last = self.lines[-1] if self.lines else ""
        return {"pilot": self.name, "status": self._child.exit_status(), "said": last}

    def end(self) -> None:
        """Have it hold its ship and release it. Idempotent."""
        if self._child.running():
            self._child.end(within_s=END_S)

    def _read(self) -> None:
        assert self._child.stdout is not None
        with self._child.stdout as output:
            for raw in output:
                line = raw.decode("utf-8", "replace").rstrip()
                if not line:
                    continue
                self.lines.append(line)
                self._say(f"{self.name:>6}: {_short(line)}")
                if " is taken by " in line:
                    self.has_ship = True
                    self.answered.set()
        self.answered.set()


def run_demo_ships(options: DemoOptions, *, ships: int, say: Say, tell: Tell) -> dict[str, Any]:
    """Fly the mission on every ship at once and return the report. All are on one page.

    tell: gets the events for programs. Raises StackError if the stack does not start, or if a
    pilot gets no ship within TAKEN_WITHIN_S. After Ctrl-C every ship holds its place.
    """
    _, airframe = flyable(options)
    names = vehicle_names(airframe.name, ships=ships)
    if (warning := crowded(ships)) is not None:
        say(warning)
    before = {name: newest(name) for name in names}
    with (
        starting_stack(options, vehicles=names) as (stack, broker),
        demo_page(
            wanted=options.page, read_only=options.read_only, broker=broker, vehicle=names[0],
            airframe=airframe, clock=SystemClock(), say=say, tell=tell,
            chaos=Chaos(
                paths=RuntimePaths(stack.paths.directory / names[0]), vehicle=names[0],
                broker=broker, airframe=airframe, clock=SystemClock(),
                keys=signing_keys_from_environment(),
            ),
        ) as page,
    ):  # fmt: skip

        def say_to_all(line: str) -> None:
            say(line)
            if page is not None:
                for name in names:
                    page.tell("caption", {"text": line.strip()}, vehicle=name)

        stack.wait_until_ready()
        say_to_all(f"{', '.join(names)} are ready (simulated), on one broker")
        flights, late = _fly(options, broker=broker, ships=ships, say=say_to_all)
    flown = [flight["status"] == 0 for flight in flights]
    logs = [recorded_since(before[name], vehicle=name) for name in names]
    is_refused = late is not None and late["status"] == NOT_AUTHORISED
    report = {
        "ok": all(flown) and is_refused and not stack.left,
        "simulated": True,
        "vehicles": names,
        "airframe": options.airframe,
        "flights": flights,
        "refused": late,
        "left_behind": stack.left,
        "logs": logs,
    }
    say(
        f"{sum(flown)} of {ships} ships have flown the mission (simulated)\n"
        f"left behind: {', '.join(stack.left) or 'nothing'}"
    )
    for log in logs:
        say_replay(log, say=say)
    return report


def wait_for_ships(pilots: Sequence[Pilot], *, within_s: float) -> None:
    """Return once every pilot has a ship. Raises StackError, which names one that has none."""
    until_s = time.monotonic() + within_s
    for pilot in pilots:
        ended = pilot.answered.wait(max(0.0, until_s - time.monotonic()))
        if not pilot.has_ship:
            when = "has ended without a ship" if ended else f"has no ship after {within_s:g} s"
            said = pilot.lines[-1] if pilot.lines else "nothing"
            raise StackError(f"the pilot {pilot.name} {when}; the last that it said: {said}")


def _fly(
    options: DemoOptions, *, broker: str, ships: int, say: Say
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the ends of the pilots that have a ship, and of the one that has none."""
    pilots: list[Pilot] = []

    def enter(name: str, *, wait_s: str | None) -> Pilot:
        one = Pilot(name, broker=broker, mission=options.mission, wait_s=wait_s, say=say)
        pilots.append(one)
        return one

    try:
        for name in PILOTS[:ships]:
            enter(name, wait_s=FREE_WAIT_S)
        wait_for_ships(pilots, within_s=TAKEN_WITHIN_S)
        enter(PILOTS[ships], wait_s=None).finish()
        for pilot in pilots:
            pilot.finish()
    except KeyboardInterrupt:
        say("stopped: every ship holds its place, and is released")
    finally:
        for pilot in pilots:
            pilot.end()
    ended = [pilot.finish() for pilot in pilots]
    return ended[:ships], ended[ships] if len(ended) > ships else None


def _short(line: str) -> str:
    """Return the line of a finished leg with its last stage only."""
    what, arrow, rest = line.partition(": ")
    return f"{what}: {rest.rpartition(' → ')[2]}" if arrow and " → " in rest else line
