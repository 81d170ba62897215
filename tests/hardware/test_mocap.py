from math import radians
from typing import Any

import pytest

from blimp.hardware.mocap import Mocap
from tests.hardware.doubles import Port, on_port, well

PORT = "/dev/ttyAMA0"


def fitted(**options: float) -> tuple[Mocap, Port]:
    row: dict[str, Any] = {"name": "tag", "chip": "mocap", "rate_hz": 40.0, "options": options}
    return on_port(Mocap, port=PORT, **row)[:2]


def test_a_line_becomes_a_pose_with_its_age() -> None:
    mocap, port = fitted(link_s=0.01)
    port.arrive(b"MC,7,20.5,1.2500,-2.5000,-0.7500,-90.00*37\r\n")
    mocap.poll(0.1)
    assert mocap.sample is not None
    assert mocap.sample.position_ned_m == (1.25, -2.5, -0.75)
    assert mocap.sample.latency_s == pytest.approx(0.0305)
    assert mocap.sample.yaw_rad == pytest.approx(radians(-90.0))
    assert mocap.sample.accuracy_m == 0.005
    assert well(mocap)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("MC,7,20.5,nan,0,0,0", "unreadable"),
        ("MC,7,nan,1,0,0,0", "unreadable"),
        ("MC,7,inf,1,0,0,0", "unreadable"),
        ("MC,7,900,1,0,0,0", "a pose 0.90 s old, the limits are 0 to 0.5 s"),
        ("MC,7,-20,1,0,0,0", "a pose -0.02 s old"),
        ("MC,7,20,1001,0,0,0", "out of range"),
        ("MC,7,20,1,0,0,361", "out of range"),
        ("MC,7,20,1,0,0", "unreadable"),
        ("POS,7,20,1,0,0,0", "unreadable"),
    ],
)
def test_what_is_no_pose_has_its_reason(body: str, words: str) -> None:
    mocap, port = fitted()
    checksum = 0
    for byte in body.encode():
        checksum ^= byte
    port.arrive(f"{body}*{checksum:02X}\r\n".encode())
    mocap.poll(0.1)
    assert mocap.sample is None
    assert words in mocap.error
    assert mocap.garbage == 1


def test_a_pose_that_never_changes_is_that_of_a_ship_out_of_sight() -> None:
    mocap, port = fitted()
    for step in range(12):
        port.arrive(b"MC,7,20.5,1.2500,-2.5000,-0.7500,-90.00*37\r\n")
        mocap.poll(0.1 * step)
    assert mocap.sample is not None
    assert mocap.sample.t_s == 0.0
    assert not well(mocap)
    assert "no new pose for 1 s" in mocap.error


def test_a_wrong_checksum_is_no_pose() -> None:
    mocap, port = fitted()
    port.arrive(b"MC,7,20.5,1.2500,-2.5000,-0.7500,-90.00*38\r\n")
    mocap.poll(0.1)
    assert mocap.sample is None
    assert "unreadable line" in mocap.error
