"""The process of the room's address: what `audience.py` starts and keeps alive.

Tested by test_audience.py.
"""

import os
import socket
import sys
from functools import partial

import msgspec

from blimp.clock import SystemClock
from blimp.web.access import Tokens
from ground_station.page.audience import (
    NICE,
    RelayedAnswers,
    RelayedPictures,
    RelayedShips,
    Upstream,
)
from ground_station.page.picture import Pictures
from ground_station.page.server import Page


def main() -> None:
    os.nice(NICE)
    upstream = msgspec.json.decode(sys.stdin.buffer.readline(), type=Upstream)
    clock = SystemClock()
    page = Page(
        ships=RelayedShips(upstream, clock=clock),
        parts=(
            Pictures(partial(RelayedPictures, upstream), vehicle=upstream.vehicle, clock=clock),
            RelayedAnswers(upstream, clock=clock),
        ),
        clock=clock,
        listening=socket.socket(fileno=int(sys.argv[1])),
        tokens=Tokens(viewer=upstream.viewer, is_audience=True),
        title=upstream.title,
    )
    page.start()
    sys.stdin.buffer.read()  # until the operator's page is gone
    os._exit(0)


if __name__ == "__main__":
    main()
