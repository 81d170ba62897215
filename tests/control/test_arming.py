from typing import Any

import msgspec
import pytest

from blimp import airframe as airframes
from blimp.control.arming import Readiness, problems, where
from blimp.control.failsafe import Flags
from blimp.rotation import from_euler
from blimp.types import VehicleState
from tests.control.parts import Bench, BenchSensors, at, twin

SHIP = twin()


def ready(
    state: VehicleState | None = None,
    *,
    unhealthy: tuple[str, ...] = (),
    **flags: Any,
) -> Readiness:
    sensors = BenchSensors()
    sensors.unhealthy = unhealthy
    values = {"battery_v": 8.0, "unhealthy": unhealthy, **flags}
    return Readiness(
        airframe=SHIP,
        state=state or at(on_ground=True),
        flags=Flags(**values),
        sensors=sensors.status(0.0),
        max_wind_mps=1.2,
    )


def test_a_ship_in_order_has_no_reason_not_to_arm() -> None:
    assert problems(ready()) == ()


@pytest.mark.parametrize(
    ("readiness", "reason"),
    [
        (
            ready(unhealthy=("imu",)),
            "imu: no answer; check its wiring at i2c-1 0x68",
        ),
        (ready(unhealthy=("tag",)), "tag: no answer; check its wiring at /dev/ttyAMA0"),
        (
            ready(unhealthy=("motors_tail",)),
            "motors_tail: no answer; check its wiring at gpio ain1 16, ain2 20, nsleep 21",
        ),
        (
            ready(at(attitude_valid=False)),
            "attitude: not known; check the imu and wait for its first samples",
        ),
        (
            ready(at(coasting=True, on_ground=True)),
            "attitude: not known; check the imu and wait for its first samples",
        ),
        (ready(at(height_valid=False)), "height: not known; check the barometer and the ranger"),
        (
            ready(at(position_valid=False, on_ground=True)),
            "position: not known; wait for the tag's anchors or a GPS fix",
        ),
        (
            ready(gyro_settled=False),
            "gyro: its bias is not measured yet; "
            "lay the ship down nose north, keep it still for 3 s, "
            "or wait for 12 s if wind moves it",
        ),
        (ready(battery_v=None), "battery: no reading; check the power monitor"),
        (
            ready(deaf="twin hears no broadcast"),
            "emergency stop: twin hears no broadcast; ask 'blimp doctor' and the worker's log",
        ),
        (
            ready(battery_v=6.9),
            "battery: 6.90 V, must be above 7.00 V; charge or change it",
        ),
        (
            ready(at(attitude=from_euler(0.0, 0.35, 0.0))),
            "level: tilted by 20 degrees, limit 15; put the ship level",
        ),
        (
            ready(at(rates_body_radps=(0.0, 0.0, 0.5))),
            "still: turning at 0.50 rad/s, limit 0.3; hold it still",
        ),
        (
            ready(at(velocity_ned_mps=(0.0, 1.5, 0.0))),
            "wind: it or a person moves the ship at 1.5 m/s, and twin holds against 1.2 m/s; "
            "hold it still, or wait for less wind",
        ),
        (
            ready(since_stall_s=0.5),
            "loop: has just stalled; wait 2 s, and look for what else the computer is doing",
        ),
    ],
)
def test_every_reason_names_what_why_and_the_cure(readiness: Readiness, reason: str) -> None:
    assert problems(readiness) == (reason,)


def test_a_device_that_is_not_required_does_not_stop_it() -> None:
    assert problems(ready(unhealthy=("gps", "sonar"))) == ()


def test_all_reasons_are_reported_at_once() -> None:
    reported = problems(
        ready(
            at(position_valid=False, on_ground=True),
            unhealthy=("baro",),
            battery_v=6.0,
            gyro_settled=False,
        )
    )
    assert [reason.split(":")[0] for reason in reported] == ["baro", "position", "gyro", "battery"]


def test_in_the_air_neither_position_nor_heading_is_asked_for() -> None:
    adrift = at(0.0, 0.0, 5.0, position_valid=False, on_ground=False)
    assert problems(ready(adrift, gyro_settled=False)) == ()
    assert problems(ready(adrift, gyro_settled=False, battery_v=6.0)) != ()


def test_wind_is_refused_from_the_speed_on_that_the_airframe_can_hold() -> None:
    """Before, 1 m/s was the limit of every ship, with no word of wind."""
    for name, most_mps in (("twin", 0.8), ("hobby", 0.57)):
        ship = Bench(airframe=airframes.load(name))
        for speed_mps, flies in ((most_mps - 0.1, True), (most_mps + 0.1, False)):
            moved = at(velocity_ned_mps=(speed_mps, 0.0, 0.0))
            found = ship.loop._commander.arming_reasons(now_s=4.0, state=moved, flags=Flags())
            named = [reason for reason in found if reason.startswith("wind: ")]
            assert (named == []) is flies
            assert flies or (
                f"{speed_mps:.1f} m/s" in named[0] and f"{most_mps:.1f} m/s" in named[0]
            )


def test_where_names_bus_address_port_or_pins() -> None:
    by_name = {device.name: device for device in SHIP.device}
    assert where(by_name["servos"]) == "i2c-1 0x40"
    assert where(by_name["gps"]) == "/dev/ttyAMA1"
    bare = msgspec.structs.replace(by_name["sonar"], pins={})
    assert where(bare) == "gpio"
