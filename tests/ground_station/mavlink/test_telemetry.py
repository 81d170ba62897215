"""Snapshots as messages, modes by their numbers, names of parameters."""

import math

import msgspec
import pytest

from blimp.airframe import load, names
from blimp.control.failsafe import Times, rules
from blimp.ship import Lockstep
from blimp.types import Mode
from ground_station.mavlink import telemetry
from ground_station.mavlink.modes import MODES, asked_mode, standard_mode
from ground_station.mavlink.parameters import LETTERS, by_id
from ground_station.mavlink.telemetry import STREAMS, Seen, Streams, statustexts
from ground_station.mavlink.wire import Decoder, Encoder


def test_each_message_of_a_flight_is_read_back() -> None:
    with Lockstep("twin", seed=1) as ship:
        ship.command("arm")
        ship.complete("takeoff", altitude_m=2.0, within_s=60)
        seen = Seen(ship.snapshot(), ship.airframe.home, False, 8.4, 6.4)
    encoder, decoder = Encoder(system=7), Decoder(whole=True)
    found = {}
    for make, _ in STREAMS.values():
        (read,) = decoder.feed(encoder.pack(make(seen)))
        assert read.get_srcSystem() == 7
        found[read.get_type()] = read
    assert found["HEARTBEAT"].base_mode & 128
    assert found["HEARTBEAT"].custom_mode == 4 << 16 | 3 << 24
    assert found["EXTENDED_SYS_STATE"].landed_state == telemetry.IN_AIR
    place = found["GLOBAL_POSITION_INT"]
    assert place.relative_alt == pytest.approx(2000, abs=400)
    assert place.alt - place.relative_alt == pytest.approx(3000, abs=2)
    assert found["LOCAL_POSITION_NED"].z == pytest.approx(-2.0, abs=0.4)
    assert found["SYS_STATUS"].voltage_battery == pytest.approx(8000, abs=500)
    assert found["SYS_STATUS"].current_battery > 30  # 0.01 A
    assert 50 < found["BATTERY_STATUS"].battery_remaining <= 100
    q = found["ATTITUDE_QUATERNION"]
    assert math.hypot(q.q1, q.q2, q.q3, q.q4) == pytest.approx(1.0)


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
