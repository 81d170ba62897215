"""The live view of a mission under way: telemetry and the mission's events in one picture."""

import threading
from typing import Self

from rich.console import Console
from rich.live import Live

from blimp.clock import Clock
from blimp.errors import LinkError
from blimp.link.telemetry import TelemetryReader
from ground_station.flyer import MissionEvent
from ground_station.mission_file import Mission
from ground_station.view import FlightView
from ground_station.watch import Watch

REDRAW_S = 0.2


class MissionScreen:
    """Draws on the alternate screen from a thread of its own, until it is left.

    Leaving it restores the terminal in every case.
    """

    def __init__(
        self,
        *,
        mission: Mission,
        vehicle: str,
        reader: TelemetryReader,
        clock: Clock,
        console: Console | None = None,
    ) -> None:
        self._track = mission.track()
        self._vehicle = vehicle
        self._reader = reader
        self._watch = Watch(clock=clock)
        self._event: MissionEvent | None = None
        self._trouble = ""
        self._stop = threading.Event()
        self._live = Live(console=console or Console(), screen=True, auto_refresh=False)
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)

    def hear(self, event: MissionEvent) -> None:
        """Store an event of the mission; it is drawn at the next turn."""
        self._event = event

    def view(self) -> FlightView:
        """Return the present picture."""
        event = self._event
        current = None if event is None else self._track.get(event.leg)
        return FlightView(
            vehicle=self._vehicle,
            snapshot=self._watch.snapshot,
            age_s=self._watch.age_s,
            legs=tuple(self._track.values()),
            current=current,
            trail=tuple(self._watch.trail),
            progress=self._trouble or _words(event),
            altitude_set_m=None if current is None else current.end[2],
        )

    def _run(self) -> None:
        while not self._stop.wait(REDRAW_S):
            try:
                found = self._reader.latest()
                self._trouble = ""
            except LinkError as error:
                found, self._trouble = None, str(error)
            if found is not None:
                self._watch.take(*found)
            self._live.update(self.view(), refresh=True)

    def __enter__(self) -> Self:
        self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._live.stop()


def _words(event: MissionEvent | None) -> str:
    if event is None:
        return "mission begins"
    share = "" if event.fraction is None else f" {100.0 * event.fraction:.0f} %"
    reason = f": {event.reason}" if event.reason else ""
    return f"leg {event.leg}/{event.legs} {event.words}: {event.stage}{share}{reason}"
