"""Where the page's picture of a ship comes from: telemetry now, or a recording.

A source runs in threads of its own and tells what it hears; it never waits for a viewer.
"""

import contextlib
import threading
from collections.abc import Callable
from typing import Any, Protocol

from blimp.clock import Clock
from blimp.closing import Closing
from blimp.errors import BlimpError, LinkError
from blimp.link.telemetry import Dated, TelemetryReader
from blimp.link.timeline import ordered
from blimp.types import Snapshot
from ground_station.discover import ShipAddress
from ground_station.page.journey import Journeys
from ground_station.page.joystick import Joystick
from ground_station.page.state import EVENTS, PAST_S, PAST_STEP_S, Hear, plotted, state_object
from ground_station.report import event_object

POLL_S = 0.5
RETRY_S = 0.5


class Source(Protocol):
    """One ship as it is shown. `start` is called once, before `close`."""

    @property
    def vehicle(self) -> str: ...

    @property
    def is_live(self) -> bool:
        """Whether commands reach the ship; a recording takes none."""
        ...

    def start(self, hear: Hear) -> None:
        """Tell `hear` from now on. Returns at once."""
        ...

    def ask(self, kind: str, content: dict[str, Any]) -> None:
        """Take an operator's wish: the sticks, or the place in a recording. Returns at once.

        Raises ValidationError of msgspec for what is none.
        """
        ...

    def close(self) -> None: ...


class LiveShip(Closing):
    """A ship that is heard on its broker.

    open_reader: makes a reader of its telemetry. joystick: flies it by the sticks of a viewer.
    The threads outlive an outage of the broker.
    """

    is_live = True

    def __init__(
        self,
        ship: ShipAddress,
        *,
        open_reader: Callable[[], TelemetryReader],
        journeys: Journeys,
        joystick: Joystick,
        clock: Clock,
    ) -> None:
        self.vehicle = ship.vehicle
        self._open_reader = open_reader
        self._journeys = journeys
        self._joystick = joystick
        self._clock = clock
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, hear: Hear) -> None:
        journeys = self._journeys
        for name, run in (
            ("telemetry", self._follow),
            ("timeline", self._follow_record),
            ("queue", journeys.follow_queue),
            ("results", journeys.follow_results),
            ("joystick", self._joystick.fly),
        ):
            thread = threading.Thread(target=run, args=(hear,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def ask(self, kind: str, content: dict[str, Any]) -> None:
        """Take the sticks; commands have their own way."""
        if kind == "sticks":
            self._joystick.take(content)

    def _follow(self, hear: Hear) -> None:
        past: list[tuple[Snapshot, float]] | None = None
        while not self._stop.is_set():
            try:
                with self._open_reader() as reader:
                    if past is None:
                        past = reader.past(span_s=PAST_S, step_s=PAST_STEP_S)
                        hear("past", [plotted(state_object(*one)) for one in past])
                    for found in reader.follow(poll_s=POLL_S):
                        if self._stop.is_set():
                            return
                        hear("trouble", "")
                        if found is not None:
                            self._journeys.step_ms = found[0].loop.step_ms.get("mean", 0.0)
                            hear("state", state_object(*found))
            except LinkError as error:
                hear("trouble", str(error))
            except BlimpError as error:
                hear("trouble", str(error))
                return
            self._stop.wait(RETRY_S)

    def _follow_record(self, hear: Hear) -> None:
        """Tell what happened; what is wrong with the link is said beside."""
        known: list[Dated] = []
        while not self._stop.is_set():
            with contextlib.suppress(BlimpError), self._open_reader() as reader:
                while not self._stop.is_set():
                    if news := reader.news(wait_s=POLL_S):
                        now_s = self._clock.wall_s()
                        dated = [one._replace(age_s=now_s - one.age_s) for one in news]
                        known = ordered([*known, *dated])[-EVENTS:]
                        hear("events", [
                            event_object(one.happening, t_s=one.t_s, at_s=round(one.age_s, 2))
                            for one in known
                        ])  # fmt: skip
            self._stop.wait(RETRY_S)

    def close(self) -> None:
        self._stop.set()
        self._journeys.close()
        self._joystick.close()
        for thread in self._threads:
            thread.join()
