"""`ground page`, and the page of a ship's own computer: served until Ctrl-C."""

import faulthandler
import io
import sys
from collections.abc import Callable
from functools import partial
from typing import TextIO

import segno

from blimp.web.access import Tokens
from blimp.web.listening import room_words
from ground_station.page.chaos import Harm, local_harm
from ground_station.page.pilots import Pilots
from ground_station.page.server import Page
from ground_station.page.ships import BrokerShips
from ground_station.report import DONE
from ground_station.session import Session
from ground_station.watch import terminate_as_interrupt, wait_for_interrupt

LOOPBACK = "127.0.0.1"
EVERYWHERE = "0.0.0.0"
# Chosen: several times the longest wait of a thread that ends, the 2 s of a question to a broker.
END_S = 10.0
WHITE_ON_BLACK, AS_BEFORE = "\x1b[97;40m", "\x1b[0m"  # ECMA-48, SGR


def page(
    session: Session, *, port: int, read_only: bool, host: str | None, chaos: bool = False
) -> int:
    """Serve the page of the session's ship until Ctrl-C or SIGTERM.

    read_only: open a second address in the network, on which nobody can command. host: the
    address to listen on; None for this machine alone. chaos: let operators harm a simulated ship.
    """
    return serve(
        session,
        host=host or LOOPBACK,
        port=port,
        view_host=EVERYWHERE if read_only else None,
        harm=local_harm(session) if chaos else None,
        ready=partial(_tell, session),
    )


def serve(
    session: Session,
    *,
    host: str,
    port: int,
    ready: Callable[[Page], object],
    view_host: str | None = None,
    harm: Harm | None = None,
    tokens: Tokens | None = None,
    pilots: Pilots | None = None,
) -> int:
    """Serve the page of the session's ship until Ctrl-C or SIGTERM.

    ready: called once it answers. pilots: of a page on the ship itself, whose heartbeat is theirs;
    None for a page that is its pilot's own program. The others: as `Page` and `BrokerShips`.
    """
    present = (lambda: True) if pilots is None else pilots.are_present
    with (
        terminate_as_interrupt(),
        BrokerShips(session, harm=harm, present=present) as ships,
        Page(
            ships=ships,
            parts=ships.parts(),
            clock=session.clock,
            host=host,
            port=port,
            view_host=view_host,
            tokens=tokens,
            pilots=pilots,
        ) as served,
    ):
        try:
            served.start()
            ready(served)
            wait_for_interrupt()
        except KeyboardInterrupt:
            if pilots is not None:
                pilots.leave()
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


def print_code(url: str, out: TextIO | None = None) -> None:
    """Draw an address as a QR code, black on white in any theme, on a terminal: standard error."""
    out = out or sys.stderr
    if out.isatty():
        drawn = io.StringIO()
        segno.make(url, error="l").terminal(out=drawn, compact=True)  # a block is white
        for line in drawn.getvalue().splitlines():
            print(f"{WHITE_ON_BLACK}{line}{AS_BEFORE}", file=out)
