"""`blimp mavlink` as a process: two ships as two systems, by TCP both ways and by a serial line."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from pymavlink import mavutil

from tests.ground_station.mavlink.gateway import begun
from tests.ground_station.mavlink.test_gateway import Station, opened
from tests.sim.running import RunningStack

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
NAMES = ("twin-1", "twin-2")
ONE, TWO = 10, 11  # their systems


class Radio(mavutil.mavfile):  # type: ignore[misc]  # pymavlink has no types
    """The station's end of a serial line: the other side of a pseudo-terminal."""

    def __init__(self, line: int) -> None:
        os.set_blocking(line, False)
        super().__init__(line, "pty", source_system=255, source_component=190)

    def recv(self, n: int | None = None) -> bytes:
        try:
            return os.read(self.fd, 4096)
        except BlockingIOError:
            return b""

    def write(self, buf: bytes) -> None:
        os.write(self.fd, buf)

    def close(self) -> None:
        """The test closes the line."""


@pytest.fixture
def fleet() -> Iterator[RunningStack]:
    with RunningStack("--ships", "2") as fleet:
        for name in NAMES:
            fleet.wait_for_event(lambda e, n=name: e["event"] == "ready" and e["vehicle"] == n)  # type: ignore[misc]
        yield fleet


def station_of(place: str, *, system: int) -> Any:
    return mavutil.mavlink_connection(
        place, source_system=system, source_component=190, dialect="all"
    )


def heard(station: Station, system: int, *, armed: bool) -> None:
    """Wait until a ship says so."""
    station.get(
        "HEARTBEAT",
        lambda m: m.get_srcSystem() == system and bool(m.base_mode & 128) is armed and m.type == 7,
    )


def test_ships_are_systems_on_every_kind_of_link(fleet: RunningStack) -> None:
    with ExitStack() as own:
        radio, line = os.openpty()
        own.callback(os.close, radio)
        own.callback(os.close, line)
        called = station_of("tcpin:127.0.0.1:0", system=254)
        place = f"tcp:127.0.0.1:{called.listen.getsockname()[1]}"
        words = (
            "--broker", fleet.ready["broker"], "--vehicle", ",".join(NAMES),
            "--system-id", str(ONE), "--listen", "tcp:127.0.0.1:0", "--connect", place,
            "--serial", f"{os.ttyname(line)}:57600",
        )  # fmt: skip
        port = own.enter_context(begun(fleet, *words)).port
        by_tcp = own.enter_context(opened(station_of(f"tcp:127.0.0.1:{port}", system=255)))
        by_radio = own.enter_context(closing(Station(Radio(radio))))
        by_call = own.enter_context(closing(Station(called)))
        for station in (by_tcp, by_radio, by_call):
            for system in (ONE, TWO):
                heard(station, system, armed=False)

        # Each ship has a station, plans and a stop of its own.
        assert by_tcp.command(400, 1, target=ONE) == 0
        assert by_call.command(400, 1, target=TWO) == 0
        assert by_call.command(400, 0, target=ONE) == 1
        by_call.text("station 255 has the ship")
        for system in (ONE, TWO):
            heard(by_radio, system, armed=True)
        assert by_radio.command(400, 0, target=ONE) == 1  # its number, but another link
        assert by_tcp.command(400, 0, target=ONE) == 0
        heard(by_tcp, ONE, armed=False)
        by_radio.send.mission_request_list_send(TWO, 1, 0)
        count = by_radio.get("MISSION_COUNT")
        assert (count.get_srcSystem(), count.count) == (TWO, 0)
        assert by_radio.command(185, 1, target=TWO) == 0
        heard(by_tcp, TWO, armed=False)
        for name, killed in zip(NAMES, (False, True), strict=True):
            assert fleet.ground("--vehicle", name, "status").json["killed"] is killed
