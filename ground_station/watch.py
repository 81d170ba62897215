"""`ground watch`: the live view in a terminal, lines of text or JSON elsewhere; `ground events`."""

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NoReturn

from blimp.clock import Clock
from blimp.errors import LinkError
from blimp.link.telemetry import TelemetryReader
from blimp.link.timeline import Happening
from blimp.types import Snapshot
from blimp.web.outcome import Outcome
from ground_station.map import Point
from ground_station.report import Report, event_object, status_object
from ground_station.view import FlightView, flight_line

STOP_KEY = "!"  # needs shift on most keyboards, so that nobody presses it by accident
REDRAW_S = 0.2
RETRY_S = 0.5
TEXT_PERIOD_S = 1.0
LOOK_S = 1.0
TRAIL_POINTS = 2000
TRAIL_STEP_M = 0.1


class Watch:
    """The newest data of one ship: its snapshot, its age, and its track."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._snapshot: Snapshot | None = None
        self._age_s = 0.0
        self._seen_s = 0.0
        self.trail: deque[Point] = deque(maxlen=TRAIL_POINTS)

    @property
    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    @property
    def age_s(self) -> float:
        """How old the snapshot is at this moment."""
        return self._age_s + self._clock.now_s() - self._seen_s

    def take(self, snapshot: Snapshot, age_s: float) -> None:
        if self._snapshot is not None and snapshot.boot_id != self._snapshot.boot_id:
            self.trail.clear()  # another flight: its origin is its own pad
        self._snapshot, self._age_s, self._seen_s = snapshot, age_s, self._clock.now_s()
        north, east, _ = snapshot.position_ned_m
        if not self.trail or _apart((north, east), self.trail[-1]):
            self.trail.append((north, east))


class StopKey:
    """Stops the ship when STOP_KEY is pressed in a terminal. `words` is the text of its result.

    stop: sends the stop and waits for its reply. It has its own connection, which is open before
    the key is pressed. other: called with what else is typed, and with "" at the terminal's end.
    """

    def __init__(
        self, stop: Callable[[], Outcome], *, other: Callable[[str], object] = lambda _: None
    ) -> None:
        self._stop = stop
        self._other = other
        self.words = ""
        self.was_pressed = False
        self._pressed = threading.Lock()  # during a stop, a key that is held does nothing

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Read keys at once, without an echo."""
        if not sys.stdin.isatty():
            yield
            return
        try:
            import termios
            import tty
        except ImportError:  # Windows: `ground estop` in another window
            yield
            return

        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        self.words = f"{STOP_KEY} stops every motor at once"
        tty.setcbreak(terminal)
        threading.Thread(target=self._listen, args=(terminal,), daemon=True).start()
        try:
            yield
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
            with self._pressed:  # a stop that is under way goes on before its connection ends
                pass

    def _listen(self, terminal: int) -> None:
        with suppress(OSError):  # the terminal is gone
            while typed := os.read(terminal, 64).decode("utf-8", "replace"):
                if STOP_KEY in typed and self._pressed.acquire(blocking=False):
                    threading.Thread(target=self._press, daemon=True).start()
                self._other(typed)
        self._other("")

    def _press(self) -> None:
        self.was_pressed = True
        self.words = "emergency stop: on its way"
        try:
            ended = self._stop()
        except Exception as error:
            self.words = f"emergency stop: {error}"
            return
        finally:
            self._pressed.release()
        roads_ms = ended.result["roads_ms"] if ended.state == "SUCCESS" else {}
        roads = ", ".join(f"{road} {ms:.0f} ms" for road, ms in roads_ms.items())
        self.words = f"emergency stop: {ended.state} {ended.reason} {roads}"


def watch(
    *,
    reader: TelemetryReader,
    vehicle: str,
    report: Report,
    clock: Clock,
    timeout_s: float | None,
    stop_key: StopKey | None = None,
) -> bool:
    """Show the ship until Ctrl-C, SIGTERM or `timeout_s`. Returns whether it ever published.

    stop_key: listened to in a terminal. Waits for a broker that becomes unreachable. Raises
    LinkError if there is none at first.
    """
    reader.latest()
    state = Watch(clock=clock)
    end_s = None if timeout_s is None else clock.now_s() + timeout_s
    news = _news(reader, clock)
    with terminate_as_interrupt():
        try:
            if report.as_json or not report.out_is_terminal:
                _print(news, state, report, clock, end_s)
            else:
                _draw(news, state, vehicle, clock, end_s, stop_key)
        except KeyboardInterrupt:
            pass
    return state.snapshot is not None


def events(
    *,
    reader: TelemetryReader,
    report: Report,
    clock: Clock,
    follow: bool,
    timeout_s: float | None,
) -> bool:
    """Print the record of what happened; `follow` it until Ctrl-C, SIGTERM or `timeout_s`.

    Returns whether there is any. Waits for a broker that becomes unreachable. Raises LinkError if
    there is none at first.
    """
    end_s = None if timeout_s is None else clock.now_s() + timeout_s
    found = reader.news()
    has_some = bool(found)
    with terminate_as_interrupt(), suppress(KeyboardInterrupt):
        while True:
            for one in found:
                at_s = clock.wall_s() - one.age_s
                if report.as_json:
                    report.json(event_object(one.happening, t_s=one.t_s, at_s=round(at_s, 3)))
                else:
                    report.data(event_line(one.happening, at_s=at_s))
            if not follow or (end_s is not None and clock.now_s() >= end_s):
                break
            try:
                found = reader.news(wait_s=REDRAW_S)
            except LinkError as error:
                found = []
                report.say(str(error))
                clock.sleep_until(clock.now_s() + RETRY_S)
            has_some = has_some or bool(found)
    return has_some


def event_line(happening: Happening, *, at_s: float) -> str:
    """Return a happening as a line: "14:02:11.4  died  the worker died of SIGKILL"."""
    time_of_day = time.strftime("%H:%M:%S", time.localtime(at_s)) + f"{at_s % 1:.1f}"[1:]
    command = f"  [{happening.command[:8]}]" if happening.command else ""
    return f"{time_of_day}  {happening.kind:<8}  {happening.text}{command}"


def _print(
    news: Iterator[tuple[Snapshot, float] | str | None],
    state: Watch,
    report: Report,
    clock: Clock,
    end_s: float | None,
) -> None:
    """JSON: every snapshot. Text: one line a second, and one for each lost link."""
    printed_s: float | None = None
    trouble = ""
    for found in news:
        if isinstance(found, str) and found != trouble:
            report.say(found)
        trouble = found if isinstance(found, str) else ""
        if isinstance(found, tuple):
            state.take(*found)
            if report.as_json:
                report.json(status_object(*found))
            elif printed_s is None or clock.now_s() - printed_s >= TEXT_PERIOD_S:
                printed_s = clock.now_s()
                report.data(flight_line(*found))
        if end_s is not None and clock.now_s() >= end_s:
            return


def _draw(
    news: Iterator[tuple[Snapshot, float] | str | None],
    state: Watch,
    vehicle: str,
    clock: Clock,
    end_s: float | None,
    stop_key: StopKey | None,
) -> None:
    from rich.console import Console
    from rich.live import Live

    # The alternate screen: leaving it restores the terminal in every case.
    with (
        nullcontext() if stop_key is None else stop_key.listening(),
        Live(console=Console(), screen=True, auto_refresh=False) as live,
    ):
        for found in news:
            if isinstance(found, tuple):
                state.take(*found)
            words = "" if stop_key is None else stop_key.words
            view = FlightView(
                vehicle=vehicle,
                snapshot=state.snapshot,
                age_s=state.age_s,
                trail=list(state.trail),
                progress=found if isinstance(found, str) else words,
            )
            live.update(view, refresh=True)
            if end_s is not None and clock.now_s() >= end_s:
                return


def _news(reader: TelemetryReader, clock: Clock) -> Iterator[tuple[Snapshot, float] | str | None]:
    """Yield snapshots, None if there is no new one, and errors of the link."""
    while True:
        try:
            yield from reader.follow(poll_s=REDRAW_S)
        except LinkError as error:
            yield str(error)
            clock.sleep_until(clock.now_s() + RETRY_S)


@contextmanager
def terminate_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that cleanup runs."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def wait_for_interrupt() -> NoReturn:
    """Wait until Ctrl-C raises KeyboardInterrupt, or SIGTERM in terminate_as_interrupt().

    It looks once a second: the kernel gives a signal to any thread of the process, for example
    to one that just starts another, and that does not wake the main thread.
    """
    while True:
        time.sleep(LOOK_S)


def _apart(a: Point, b: Point) -> bool:
    return abs(a[0] - b[0]) > TRAIL_STEP_M or abs(a[1] - b[1]) > TRAIL_STEP_M
