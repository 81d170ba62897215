"""`blimp log replay`: the page on a recording, until Ctrl-C."""

import webbrowser
from collections.abc import Callable
from pathlib import Path

from blimp.clock import SystemClock
from blimp.distribution import needing
from blimp.recording.recording import open_recording
from blimp.service.show.demo_page import has_screen
from blimp.types import Progress
from ground_station.watch import terminate_as_interrupt, wait_for_interrupt


def replay(
    path: Path,
    *,
    port: int,
    speed: float,
    tell: Callable[[str], None],
    progress: Progress,
) -> None:
    """Serve the page of a recorded flight until Ctrl-C or SIGTERM; nothing is written.

    speed: times real time, 0 to 1000. tell: gets the page's address when it answers.
    progress: is called with the share of the log that is read, 0 to 1.
    Raises LogError if the log cannot be shown, ConfigError without the extra `page`, or for a port
    that cannot be listened on.
    """
    with needing("page", "the page needs"):
        from ground_station.page.recorded import RecordedShip
        from ground_station.page.server import Page
    clock = SystemClock()
    with (
        terminate_as_interrupt(),
        open_recording(path, progress=progress) as log,
        RecordedShip(log, speed=speed, clock=clock) as ship,
        Page(ships=ship, clock=clock, port=port, title="recording") as page,
    ):
        try:
            page.start()
            tell(page.url)
            if has_screen():
                webbrowser.open(page.browser_url())  # everybody can read its arguments
            wait_for_interrupt()
        except KeyboardInterrupt:
            return
