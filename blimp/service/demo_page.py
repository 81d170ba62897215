"""The page beside a demo: in this process, so that it ends with it, however that comes."""

import contextlib
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from blimp.clock import Clock
from blimp.config import ground_config
from blimp.errors import ConfigError
from ground_station.report import Report
from ground_station.session import Options, Session

if TYPE_CHECKING:
    from ground_station.page.server import Page

Say = Callable[[str], None]
Tell = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def demo_page(
    *, wanted: bool, broker: str, vehicle: str, clock: Clock, say: Say, tell: Tell
) -> Iterator["Page | None"]:
    """Serve the page during the block and say its address; None if it is not wanted or cannot be.

    It answers before the ships do. tell: gets the event for programs. A browser is opened where a
    person sits at a screen.
    """
    if not wanted:
        yield None
        return
    try:
        from ground_station.page.server import Page
        from ground_station.page.ships import BrokerShips
    except ModuleNotFoundError as error:
        say(f"no page: {error.name} is not installed: pip install 'blimp[page]'")
        yield None
        return
    session = Session(
        options=Options(broker=broker, vehicle=vehicle, as_json=True),
        config=ground_config(),
        report=Report(as_json=True),
        clock=clock,
    )
    with contextlib.ExitStack() as stack:
        ships = stack.enter_context(BrokerShips(session))
        try:
            page = stack.enter_context(Page(ships=ships, clock=clock, title="demo"))
            page.start()
        except ConfigError as error:
            say(f"no page: {error}")
            yield None
            return
        say(f"the page: {page.url}")
        tell({"event": "page", "url": page.url})
        if has_screen():
            webbrowser.open(page.url)
        yield page


def has_screen() -> bool:
    """Whether a person sits at a terminal of a machine with a screen."""
    return sys.stderr.isatty() and any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))
