"""Flights that a fence, a heading or a payload decides, on the chips and drivers in lockstep."""

from collections.abc import Callable
from functools import reduce
from math import degrees, hypot, radians
from operator import xor
from typing import Any

import msgspec
import pytest

from blimp import airframe as airframes
from blimp.airframe import Airframe, Servo
from blimp.errors import Refused
from blimp.rotation import euler, wrap_pi
from blimp.ship import Lockstep
from blimp.sim.chips.gps_nmea import GpsNmea

pytestmark = pytest.mark.long

ZONE = {"polygon": [[-4.0, -4.0], [4.0, -4.0], [4.0, 4.0], [-4.0, 4.0]]}


def up(ship: Lockstep, **area: Any) -> None:
    if area:
        ship.command("geofence", **area)
    ship.command("arm")
    ship.complete("takeoff", altitude_m=1.5, within_s=60.0)


def test_a_ship_that_is_pushed_over_the_line_comes_back_to_the_rally_point() -> None:
    rally = [{"north_m": 3.0, "east_m": 0.0, "altitude_m": 2.0}]
    with Lockstep("twin", seed=3, wind_mps=0.2) as ship:
        up(ship, zones=[ZONE], rally=rally)
        ship.complete("goto", north_m=3.4, east_m=0.0, altitude_m=1.5, within_s=60.0)
        ship.world.air("gust", north_mps=1.2, east_mps=0.0, seconds=8.0)
        until_s = ship.now_s + 40.0
        while not ship.snapshot().failsafe and ship.now_s < until_s:
            ship.step(0.5)
        assert ship.snapshot().failsafe == "outside the fence: returning"
        assert abs(ship.truth.position_ned_m[0]) < 6.0  # seen at once, not at the airframe's 110 m
        ship.step(45.0)  # from up to 9 m off, by where the wind had its nose point
        north, east, _ = ship.truth.position_ned_m
        assert hypot(north - 3.0, east) < 1.0
        assert ship.snapshot().failsafe == ""
        with pytest.raises(Refused, match="outside"):
            ship.command("goto", north_m=5.0, east_m=0.0, altitude_m=2.0)


@pytest.mark.parametrize(("airframe", "up_percent"), [("twin", 60.0), ("gtmab", 100.0)])
@pytest.mark.parametrize("mode", ["STABILIZE", "ALTHOLD"])
def test_no_stick_pushes_a_ship_through_its_ceiling(
    airframe: str, up_percent: float, mode: str
) -> None:
    """Before, 60 percent ended at 5.5 m, and the fence's failsafe took the ship back."""
    with Lockstep(airframe, seed=5, wind_mps=0.1) as ship:
        up(ship, ceiling_m=4.0)
        ship.command("mode", name=mode)
        for _ in range(15):
            ship.command("stick", up_percent=up_percent, seconds=3.0)
            for _ in range(4):
                ship.step(0.5)
                assert ship.truth.altitude_m < 4.2
        assert ship.truth.altitude_m > 3.8
        assert (ship.snapshot().mode, ship.snapshot().failsafe) == (mode, "")


@pytest.mark.parametrize(
    ("airframe", "wind_mps"), [("twin", 0.2), ("gtmab", 0.2), ("hobby", 0.1), ("blimp2b", 0.05)]
)
def test_no_stick_pushes_a_ship_over_the_side_of_its_fence(airframe: str, wind_mps: float) -> None:
    """Before, the failsafe took them back from 4.9, 7.2, 1.7 and 2.2 m outside."""
    with Lockstep(airframe, seed=1, wind_mps=wind_mps) as ship:
        up(ship, zones=[{"circle": [0.0, 0.0, 6.0]}])
        ship.command("mode", name="ALTHOLD")
        for _ in range(60):
            ship.command("stick", forward_percent=100.0, seconds=2.0)
            ship.step(0.5)
            north, east, _ = ship.truth.position_ned_m
            assert hypot(north, east) < 6.0
        assert (ship.snapshot().mode, ship.snapshot().failsafe) == ("ALTHOLD", "")
        assert "held inside the fence: steer back from it" in ship.messages


def off(ship: Lockstep, heading_deg: float) -> float:
    return abs(degrees(wrap_pi(euler(ship.truth.attitude)[2] - radians(heading_deg))))


def fly_by_gps(ship: Lockstep) -> None:
    """Fly two metres north without the tag."""
    ship.fault("tag", "no_answer")
    ship.step(10.0)
    up(ship)
    assert "tag is out: the position is that of gps" in ship.messages
    ship.complete("goto", north_m=2.0, east_m=0.0, altitude_m=1.5, within_s=60.0)
    north, east, _ = ship.truth.position_ned_m
    assert hypot(north - 2.0, east) < 4.0  # a GPS of 2 m


def test_outdoors_it_flies_by_gps_alone_and_says_so() -> None:
    with Lockstep("twin", seed=2, wind_mps=0.3) as ship:
        fly_by_gps(ship)
        ship.fault("gps", "no_answer")
        ship.step(4.0)
        assert ship.snapshot().failsafe == "position lost: holding height and heading"


def alternately(chip: GpsNmea, gga: bytes, rmc: bytes) -> list[bytes]:
    return [gga] if chip.timeline.now_s % 0.4 < 0.2 else [rmc]


# What receivers send beside, or in place of, one GGA and one RMC a moment.
RECEIVERS: dict[str, Callable[[GpsNmea, bytes, bytes], list[bytes]]] = {
    "GPS and GLONASS each": lambda chip, gga, rmc: [gga, again(gga, "GL"), rmc],
    "Galileo's one satellite first": lambda chip, gga, rmc: [
        again(gga.replace(b",1,10,", b",1,01,"), "GA"), gga, rmc,
    ],
    "positions and velocities of different moments": alternately,
    "binary beside": lambda chip, gga, rmc: [bytes.fromhex("b5620107020024240c0a") + gga, rmc],
}  # fmt: skip


def again(sentence: bytes, talker: str) -> bytes:
    body = talker + sentence[3 : sentence.index(b"*")].decode()
    return f"${body}*{reduce(xor, body.encode()):02X}\r\n".encode()


@pytest.mark.parametrize("sends", RECEIVERS.values(), ids=RECEIVERS)
def test_any_receiver_holds_it_outdoors(
    sends: Callable[[GpsNmea, bytes, bytes], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    standard = GpsNmea._epoch_messages
    monkeypatch.setattr(GpsNmea, "_epoch_messages", lambda chip: sends(chip, *standard(chip)))
    twin = airframes.load("twin")
    rows = tuple(
        msgspec.structs.replace(row, baud=38400) if row.name == "gps" else row
        for row in twin.device
    )
    twin = msgspec.structs.replace(twin, device=rows)
    with Lockstep(twin, seed=2, wind_mps=0.3) as ship:
        fly_by_gps(ship)


def test_without_tag_and_gps_it_does_not_arm() -> None:
    with Lockstep("twin", seed=2) as ship:
        ship.fault("tag", "no_answer")
        ship.fault("gps", "no_answer")
        ship.step(10.0)
        with pytest.raises(Refused, match=r"tag: .*check its wiring"):
            ship.command("arm")


def with_hatch() -> Airframe:
    """The twin with one more servo on a free channel of its driver."""
    twin = airframes.load("twin")
    servos = (*twin.servo, Servo(name="hatch", min_rad=-0.8, max_rad=0.8, slew_radps=4.0))
    devices = tuple(
        msgspec.structs.replace(row, outputs={**row.outputs, "8": "hatch"})
        if row.name == "servos"
        else row
        for row in twin.device
    )
    return msgspec.structs.replace(twin, servo=servos, device=devices)


def test_a_payload_servo_turns_in_flight_and_stays_and_others_are_refused() -> None:
    with Lockstep(with_hatch(), seed=1) as ship:
        with pytest.raises(Refused, match="not armed"):
            ship.command("payload", name="hatch", deg=30.0)
        ship.command("arm")
        assert ship.command("payload", name="hatch", deg=30.0).result == {
            "name": "hatch", "deg": 30.0,
        }  # fmt: skip
        ship.command("takeoff", altitude_m=2.0)
        ship.step(5.0)
        assert ship.world.outputs["hatch"] == pytest.approx(radians(30.0), abs=0.02)
        ship.command("payload", channel=9, pulse_us=1500.0)
        ship.step(0.5)
        assert ship.world.outputs["hatch"] == pytest.approx(0.0, abs=0.02)
        for arguments, words in (
            ({"name": "tilt", "deg": 1.0}, "no payload servo 'tilt'; payload servos are hatch"),
            ({"channel": 12, "deg": 1.0}, "no payload servo 'channel 12'"),
            ({"name": "hatch", "deg": 50.0}, "deg is 50, must be within -45.8"),
            ({"name": "hatch", "pulse_us": 2100.0}, "must be within 1000 to 2000 us"),
            ({"name": "hatch"}, "must have deg or pulse_us"),
            ({"deg": 3.0}, "must have a name or a channel"),
        ):
            with pytest.raises(Refused, match=words):
                ship.command("payload", **arguments)
