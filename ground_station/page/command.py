"""`ground page`: serves the page until Ctrl-C."""

import faulthandler
import sys

import segno

from blimp.web.listening import room_words
from ground_station.page.chaos import local_harm
from ground_station.page.server import Page
from ground_station.page.ships import BrokerShips
from ground_station.report import DONE
from ground_station.session import Session
from ground_station.watch import terminate_as_interrupt, wait_for_interrupt

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
# Chosen: several times the longest wait of a thread that ends, the 2 s of a question to a broker.
END_S = 10.0


def page(
    session: Session, *, port: int, read_only: bool, host: str | None, chaos: bool = False
) -> int:
    """Serve the page of the session's ship until Ctrl-C or SIGTERM.

    read_only: open a second address in the network, on which nobody can command. host: the
    address to listen on; None for this machine alone. chaos: let operators harm a simulated ship.
    """
    with (
        terminate_as_interrupt(),
        BrokerShips(session, harm=local_harm(session) if chaos else None) as ships,
        Page(
            ships=ships,
            parts=ships.parts(),
            clock=session.clock,
            host=host or LOOPBACK,
            port=port,
            view_host=EVERYWHERE if read_only else None,
        ) as served,
    ):
        try:
            served.start()
            _tell(session, served)
            wait_for_interrupt()
        except KeyboardInterrupt:
            # No terminal is kept by a page that does not end: it says where its threads are.
            faulthandler.dump_traceback_later(END_S, exit=True)
            session.report.end_line()
    faulthandler.cancel_dump_traceback_later()
    return DONE


def _tell(session: Session, served: Page) -> None:
    """Print the addresses, for a person or for a program."""
    view_url = served.view_url
    if session.report.as_json:
        event = {"event": "page", "url": served.url}
        session.report.json(event if view_url is None else event | {"read_only_url": view_url})
        return
    session.report.data(served.url)
    if view_url is not None:
        session.report.say("for everybody in the room, who can look and not command:")
        session.report.data(view_url)
        for words in room_words(view_url):
            session.report.say(words)
        print_code(view_url)


def print_code(url: str) -> None:
    """Draw an address as a QR code on the terminal, for phones."""
    if sys.stderr.isatty():
        segno.make(url, error="l").terminal(out=sys.stderr, compact=True)
