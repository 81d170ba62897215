"""The page beside a demo: in this process, so that it ends with it, however that comes."""

import contextlib
import os
import sys
import webbrowser
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from blimp.airframe import Airframe
from blimp.clock import Clock
from blimp.config import ground_config
from blimp.distribution import needing
from blimp.errors import ConfigError
from blimp.service.show.chaos import Chaos
from blimp.service.show.story import Card
from blimp.web.listening import room_words
from ground_station.flyer import MissionEvent
from ground_station.page import DOWN, PORT
from ground_station.report import Report
from ground_station.session import Options, Session

if TYPE_CHECKING:
    from ground_station.page.server import Page

LOOK_S = 0.5  # a reloaded tab is open again sooner than twice this
Say = Callable[[str], None]
Tell = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def demo_page(
    *,
    wanted: bool,
    read_only: bool,
    broker: str,
    vehicle: str,
    airframe: Airframe,
    clock: Clock,
    say: Say,
    tell: Tell,
    chaos: Chaos | None = None,
) -> Iterator["Page | None"]:
    """Serve the page during the block and say its address; None if it is not wanted or cannot be.

    It answers before the ships do. read_only: open a second address in the network, on which nobody
    can command. tell: gets the event for programs. chaos: harms the ship, for its panel. A browser
    is opened where a person sits at a screen.
    """
    if not wanted:
        yield None
        return
    try:
        with needing("page", "it needs"):
            from ground_station.page.command import EVERYWHERE, print_code
            from ground_station.page.server import Page
            from ground_station.page.ships import BrokerShips
    except ConfigError as error:
        say(f"no page: {error}")
        yield None
        return
    session = demo_session(broker=broker, vehicle=vehicle, clock=clock)
    with contextlib.ExitStack() as stack:
        ships = stack.enter_context(BrokerShips(session, airframe=airframe, harm=chaos))
        try:
            make = partial(
                Page, ships=ships, parts=ships.parts(), clock=clock, title="demo",
                view_host=EVERYWHERE if read_only else None,
            )  # fmt: skip
            page = stack.enter_context(_at_a_port(make, say=say))
            page.start()
        except ConfigError as error:
            say(f"no page: {error}")
            yield None
            return
        say(f"the page: {page.url}")
        event = {"event": "page", "url": page.url}
        if page.view_url is not None:
            say(f"for everybody in the room, who can look and not command: {page.view_url}")
            for words in room_words(page.view_url):
                say(words)
            print_code(page.view_url)
            event["read_only_url"] = page.view_url
        tell(event)
        if has_screen():
            webbrowser.open(page.browser_url())  # everybody can read its arguments
        yield page


def demo_session(*, broker: str, vehicle: str, clock: Clock) -> Session:
    """Return what the demo's page and its mission know of the ship."""
    return Session(
        options=Options(broker=broker, vehicle=vehicle, as_json=True),
        config=ground_config(),
        report=Report(as_json=True),
        clock=clock,
    )


def _at_a_port(make: "Callable[..., Page]", *, say: Say) -> "Page":
    """Return the page at the port that it always has, or at a free one. Raises ConfigError."""
    try:
        return make(port=PORT)
    except ConfigError:
        say(f"port {PORT} is taken on this machine: the page gets a free one")
        return make(port=0)


def wait_until_opened(page: "Page | None", *, clock: Clock) -> None:
    """Wait for a browser that is opening the page, so that it shows the first line, too."""
    while page is not None and page.is_opening:
        clock.sleep_until(clock.now_s() + LOOK_S)


def stay(page: "Page", *, clock: Clock, say: Say) -> None:
    """Keep the page of a demo that is over while a browser has it open, or until Ctrl-C.

    Its end card opens the recording on a page of its own, which needs this server.
    """
    if not page.is_watched:
        return
    say("the page stays for the replay until its tab is closed: Ctrl-C ends it, too")
    with contextlib.suppress(KeyboardInterrupt):
        while page.is_watched:
            clock.sleep_until(clock.now_s() + LOOK_S)


def has_screen() -> bool:
    """Whether a person sits at a terminal of a machine with a screen."""
    return sys.stderr.isatty() and any(os.environ.get(n) for n in ("DISPLAY", "WAYLAND_DISPLAY"))


class Story:
    """What the page says of a demo: its lines, and the card at its end. say: gets the lines."""

    def __init__(self, *, page: "Page | None", say: Say | None) -> None:
        self._page = page
        self._say = say

    def line(self, text: str) -> None:
        if self._page is not None:
            self._page.tell("caption", {"text": text})
        if self._say is not None:
            self._say(text)

    def hear(self, event: MissionEvent) -> None:
        """Say which leg of a plain mission is flown."""
        if event.stage == "started" and self._page is not None:
            text = f"Leg {event.leg} of {event.legs}: {event.spoken}"
            self._page.tell("caption", {"text": text})

    def fault(self, action: str) -> None:
        """Show which stages of a command's way a fault takes down; "" once it is over.

        The room votes for the one after it.
        """
        if self._page is not None:
            self._page.tell("down", DOWN.get(action, ()))
            if action:
                self._page.tell("votes", None)

    def end(self, card: Card) -> None:
        """Show the card."""
        if self._page is not None:
            self._page.tell("end", msgspec.to_builtins(card))
