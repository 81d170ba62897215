"""Snapshots as messages, modes by their numbers, names of parameters."""

import math
from typing import Any

import msgspec
import pytest

from blimp.actions import Need
from blimp.airframe import load, names
from blimp.control.failsafe import Times, rules
from blimp.rotation import from_euler
from blimp.ship import Lockstep
from blimp.types import Attitude, Mode
from ground_station.mavlink import telemetry
from ground_station.mavlink.modes import MODES, asked_mode, standard_mode
from ground_station.mavlink.parameters import LETTERS, by_id
from ground_station.mavlink.telemetry import STREAMS, Seen, Streams, statustexts
from ground_station.mavlink.wire import Encoder, decoded
from tests.faults.fuzz_mavlink import twin


def read_back(seen: Seen) -> dict[str, Any]:
    """Return each message of a snapshot as a station reads it, by its name."""
    encoder = Encoder(system=7)
    found = {}
    for make, _ in STREAMS.values():
        read = decoded(encoder.pack(make(seen)))
        assert read is not None
        assert read.get_srcSystem() == 7
        found[read.get_type()] = read
    return found


def test_each_message_has_the_axes_and_units_of_its_definition() -> None:
    standing = twin().seen
    doubt = msgspec.structs.replace(standing.ship.health.position, doubt="", sigma=0.25)
    ship = msgspec.structs.replace(
        standing.ship, armed=True, mode="LOITER", position_ned_m=(3.0, 4.0, -2.0), altitude_m=2.0,
        velocity_ned_mps=(0.3, 0.4, -0.1), wind_ned_mps=(0.3, 0.0, -0.1), battery_v=7.9,
        attitude_rad=Attitude(roll=0.1, pitch=-0.2, yaw=math.pi / 2.0), current_a=0.42,
        health=msgspec.structs.replace(standing.ship.health, position=doubt),
    )  # fmt: skip
    home = msgspec.structs.replace(standing.home, altitude_msl_m=3.0)
    found = read_back(Seen(ship, home, None, 8.4, 6.4))
    heart, place, local = (
        found[name] for name in ("HEARTBEAT", "GLOBAL_POSITION_INT", "LOCAL_POSITION_NED")
    )
    assert (heart.base_mode & 128, heart.system_status) == (128, telemetry.ACTIVE)
    assert heart.custom_mode == 4 << 16 | 3 << 24
    assert (place.relative_alt, place.alt, place.hdg) == (2000, 5000, 9000)
    assert (place.vx, place.vy, place.vz) == (30, 40, -10)  # cm/s
    north, east = home.local_m(1e-7 * place.lat, 1e-7 * place.lon)
    assert (north, east) == pytest.approx((3.0, 4.0), abs=0.02)
    assert (local.x, local.y, local.z) == (3.0, 4.0, -2.0)
    assert (found["SYS_STATUS"].voltage_battery, found["SYS_STATUS"].current_battery) == (7900, 42)
    assert (found["BATTERY_STATUS"].voltages[0], found["BATTERY_STATUS"].battery_remaining) == (
        7900,
        75,
    )
    fix, hud = found["GPS_RAW_INT"], found["VFR_HUD"]
    assert (fix.fix_type, fix.vel, fix.cog, fix.h_acc) == (3, 50, 5313, 250)
    assert (hud.groundspeed, hud.airspeed, hud.climb) == pytest.approx((0.5, 0.4, 0.1))
    assert (hud.alt, hud.heading) == (5.0, 90)
    assert found["EXTENDED_SYS_STATE"].landed_state == telemetry.IN_AIR
    q, half = found["ATTITUDE_QUATERNION"], from_euler(0.1, -0.2, math.pi / 2.0)
    assert (q.q1, q.q2, q.q3, q.q4) == pytest.approx(half)


@pytest.mark.parametrize(
    ("state", "changes"),
    [
        (telemetry.STANDBY, {}),
        (telemetry.CRITICAL, {"armed": True, "failsafe": "battery low"}),
        (telemetry.TERMINATED, {"armed": True, "failsafe": "battery low", "killed": True}),
    ],
)
def test_a_ship_in_trouble_says_so(state: int, changes: dict[str, Any]) -> None:
    standing = twin().seen
    bad = msgspec.structs.replace(standing.ship.health.position, doubt="no tag")
    ship = msgspec.structs.replace(
        standing.ship, battery_v=None, current_a=None,
        health=msgspec.structs.replace(standing.ship.health, position=bad), **changes,
    )  # fmt: skip
    found = read_back(msgspec.structs.replace(standing, ship=ship))
    assert found["HEARTBEAT"].system_status == state
    assert bool(found["HEARTBEAT"].base_mode & 128) is ship.armed
    assert found["GPS_RAW_INT"].fix_type == 1
    unknown = found["SYS_STATUS"]
    assert (unknown.voltage_battery, unknown.current_battery, unknown.battery_remaining) == (
        65535,
        -1,
        -1,
    )


def test_the_fence_is_healthy_until_the_ship_is_outside() -> None:
    with Lockstep("twin", seed=1) as ship:
        seen = Seen(ship.snapshot(), ship.airframe.home)
        (rule,) = (one for one in rules(ship.airframe, Times()) if one.name == "fence")
    out = msgspec.structs.replace(seen.ship, failsafe=rule.text)
    for at, health in ((seen, 2**20), (msgspec.structs.replace(seen, ship=out), 0)):
        status = telemetry.sys_status(at)
        assert status.onboard_control_sensors_enabled & 2**20
        assert status.onboard_control_sensors_health & 2**20 == health


def test_each_mode_has_one_number_and_each_is_found_by_it() -> None:
    assert {row.mode for row in MODES} == set(Mode)
    assert len({row.custom for row in MODES}) == len(MODES)
    for row in MODES:
        assert asked_mode(float(row.main), float(row.sub)) is row.mode
        assert asked_mode(float(row.custom), 0.0) is row.mode or row.custom < 2**16
    assert asked_mode(4.0, 3.0) is Mode.LOITER
    of_blimp = [
        asked_mode(float(mode), 0.0) for mode in (Mode.LAND, Mode.LOITER, Mode.RTL, Mode.AUTO)
    ]
    assert of_blimp == [Mode.LAND, Mode.LOITER, Mode.RTL, Mode.AUTO]  # as MAVProxy sends them
    assert asked_mode(float(Mode.ALTHOLD), 0.0) is asked_mode(3.0, 1.0) is None
    assert [asked_mode(*bad) for bad in ((4.0, 99.0), (-1.0, 0.0), (4.5, 3.0), (1e9, 0.0))] == [
        None
    ] * 4
    assert standard_mode(6.0) is Mode.AUTO
    assert standard_mode(99.0) is None


def test_parameters_have_names_of_their_own_on_every_airframe() -> None:
    for name in names():
        airframe = load(name)
        known = by_id(airframe)
        paths = {one.path for one in known.values()}
        assert len(paths) == len(known) > 30
        assert all(0 < len(id) <= LETTERS for id in known)
        assert known["LIM_SPEED"].path == "limits.speed_mps"


def test_a_long_text_comes_in_pieces() -> None:
    pieces = statustexts(4, "x" * 100, id=9)
    assert [(len(one.text), one.id, one.chunk_seq) for one in pieces] == [
        (50, 9, 0), (50, 9, 1), (0, 9, 2),
    ]  # fmt: skip
    (short,) = statustexts(4, "short", id=9)
    assert (short.id, short.text) == (0, "short")


def test_an_interval_is_kept_and_has_limits() -> None:
    streams = Streams()
    assert "attitude" in streams.due(0.0)
    assert "attitude" not in streams.due(0.05)
    assert streams.ask("attitude", -1.0) == ""
    assert "attitude" not in streams.due(10.0)
    assert streams.ask("attitude", 0.0) == ""
    assert "attitude" in streams.due(20.0)
    assert "the limits are 50000 to" in streams.ask("attitude", 10.0)
    assert "once a second" in streams.ask("heartbeat", -1.0)


def test_a_mode_whose_needs_the_ship_lacks_cannot_be_selected() -> None:
    withheld = {
        one.mode_name
        for one in telemetry.available_modes((Need.POSITION,))
        if one.properties == 2  # MAV_MODE_PROPERTY_NOT_USER_SELECTABLE
    }
    assert withheld == {"VELOCITY", "LOITER", "RTL", "AUTO", "FOLLOW"}
    assert [one.properties for one in telemetry.available_modes(())].count(2) == 1  # AUTO
